//===- Layout.h - shardings as small values ---------------------*- C++ -*-===//
//
// Propagation, planning and partitioning compute with shardings all day, so
// they do it on small values rather than on attributes. The axes of the mesh
// are cut into atoms such that every axis or sub-axis that the module mentions
// is a run of atoms; an atom is a small integer, a set of them one word. Axes
// of size 1 have no atoms: they split nothing.
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_DIALECT_DIST_IR_LAYOUT_H
#define CLEAVE_DIALECT_DIST_IR_LAYOUT_H

#include "cleave/Dialect/Dist/IR/Sharding.h"

namespace cleave::dist {

/// An atom: a part of a mesh axis that is never cut further. Numbered in the
/// order of the mesh, the slowest link first.
using Axis = uint8_t;
using AxisSet = uint64_t;
/// An ordered list, the major one first.
using Axes = llvm::SmallVector<Axis, 2>;

inline AxisSet setOf(llvm::ArrayRef<Axis> axes) {
  AxisSet set = 0;
  for (Axis axis : axes)
    set |= AxisSet(1) << axis;
  return set;
}
inline bool contains(AxisSet set, Axis axis) { return set >> axis & 1; }
/// The members of a set in ascending order.
Axes listOf(AxisSet set);

/// Where the elements of one tensor are. Equality is equality of placement.
struct Layout {
  llvm::SmallVector<Axes, 4> dims;
  /// The axes over which ranks hold partial sums (or candidates) of the value.
  AxisSet partial = 0;
  ReduceKind kind = ReduceKind::Sum;

  Layout() = default;
  /// A tensor that is whole on every rank.
  explicit Layout(int64_t rank) : dims(rank) {}

  /// The axes that split some dimension.
  AxisSet split() const;
  /// The axes that split or are partial.
  AxisSet used() const { return split() | partial; }
  /// The layout without its partial axes.
  Layout reduced() const;

  bool operator==(const Layout &other) const {
    return dims == other.dims && partial == other.partial &&
           (partial == 0 || kind == other.kind);
  }
  bool operator!=(const Layout &other) const { return !(*this == other); }
};

/// A mesh and the atoms of its axes.
class MeshAxes {
public:
  MeshAxes() = default;
  /// Cuts the axes so that each of `refs` is a run of atoms.
  MeshAxes(mlir::FlatSymbolRefAttr name, MeshAttr mesh,
           llvm::ArrayRef<AxisRefAttr> refs = {});

  /// The one mesh of a module, cut by every axis that its attributes mention.
  /// A module with no mesh, or with two, is an error.
  static mlir::FailureOr<MeshAxes> of(mlir::Operation *module);

  MeshAttr mesh() const { return meshAttr; }
  mlir::FlatSymbolRefAttr name() const { return symbol; }
  unsigned count() const { return atoms.size(); }
  AxisSet everyAxis() const {
    return count() == 64 ? ~AxisSet(0) : (AxisSet(1) << count()) - 1;
  }
  AxisRefAttr ref(Axis axis) const { return atoms[axis]; }

  int64_t size(Axis axis) const { return sizes[axis]; }
  int64_t size(llvm::ArrayRef<Axis> axes) const;
  int64_t size(AxisSet set) const { return size(listOf(set)); }

  /// The atoms of an axis or sub-axis, the major one first.
  Axes decompose(AxisRefAttr ref) const;
  Axes decompose(llvm::ArrayRef<AxisRefAttr> refs) const;
  /// The atoms of the axis of that name; empty where it is not in the mesh.
  Axes named(llvm::StringRef axis) const;

  /// The canonical list, neighbours merged.
  AxisListAttr list(llvm::ArrayRef<Axis> axes) const;
  AxisListAttr list(AxisSet set) const { return list(listOf(set)); }

  Layout layout(ShardingAttr sharding) const;
  /// `open`: which dimensions propagation may still split.
  ShardingAttr sharding(const Layout &layout,
                        llvm::ArrayRef<bool> open = {}) const;

  /// The shape of a tile of a tensor of `shape`.
  llvm::SmallVector<int64_t> tile(const Layout &layout,
                                  llvm::ArrayRef<int64_t> shape) const;
  mlir::RankedTensorType tile(const Layout &layout,
                              mlir::RankedTensorType type) const;

  /// Whether tiles of `size` elements under `major` are runs of whole tiles
  /// under `major` and then `minor`. The whole dimension always is one.
  bool nests(int64_t size, llvm::ArrayRef<Axis> major,
             llvm::ArrayRef<Axis> minor) const;

  /// The axes over which ranks must exchange elements, or choose among those
  /// that they have, to bring a tensor of `shape` from one layout to the other.
  AxisSet exchangeAxes(llvm::ArrayRef<int64_t> shape, const Layout &from,
                       const Layout &to) const;

private:
  mlir::FlatSymbolRefAttr symbol;
  MeshAttr meshAttr;
  llvm::SmallVector<AxisRefAttr> atoms;
  llvm::SmallVector<int64_t> sizes;
};

} // namespace cleave::dist

#endif
