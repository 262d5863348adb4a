//===- Layout.h - compact representation of shardings -----------*- C++ -*-===//
//
// Propagation, planning and partitioning compute with many shardings, so they
// use small values rather than attributes. The axes of the mesh are split into
// indivisible parts, called atoms, such that every axis or sub-axis that the
// module mentions consists of consecutive atoms. An atom is a small integer,
// and a set of atoms is one machine word. Axes of size 1 have no atoms, since
// they split nothing.
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_DIALECT_DIST_IR_LAYOUT_H
#define CLEAVE_DIALECT_DIST_IR_LAYOUT_H

#include "cleave/Dialect/Dist/IR/Sharding.h"

namespace cleave::dist {

/// An atom: a part of a mesh axis that is never split further. Atoms are
/// numbered in the order of the mesh, the slowest link first.
using Axis = uint8_t;
using AxisSet = uint64_t;
/// An ordered list of atoms (indivisible parts of mesh axes), the major one
/// first.
using Axes = llvm::SmallVector<Axis, 2>;

inline AxisSet setOf(llvm::ArrayRef<Axis> axes) {
  AxisSet set = 0;
  for (Axis axis : axes)
    set |= AxisSet(1) << axis;
  return set;
}
inline bool contains(AxisSet set, Axis axis) { return set >> axis & 1; }
/// Returns the atoms (indivisible parts of mesh axes) in `set`, in ascending
/// order.
Axes listOf(AxisSet set);

/// Which elements of a tensor each rank holds. Two layouts are equal if every
/// rank holds the same elements.
struct Layout {
  llvm::SmallVector<Axes, 4> dims;
  /// The axes over which the value is partial: along these, each rank holds
  /// only one of the values that the reduction `kind` combines (a term of a
  /// sum, or a candidate for a maximum or minimum).
  AxisSet partial = 0;
  ReduceKind kind = ReduceKind::Sum;

  Layout() = default;
  /// The layout of a tensor that is replicated on every rank.
  explicit Layout(int64_t rank) : dims(rank) {}

  /// Returns the axes that split some dimension.
  AxisSet split() const;
  /// Returns the axes that split a dimension or over which the value is
  /// partial.
  AxisSet used() const { return split() | partial; }
  /// Returns the layout without its partial axes.
  Layout reduced() const;

  bool operator==(const Layout &other) const {
    return dims == other.dims && partial == other.partial &&
           (partial == 0 || kind == other.kind);
  }
  bool operator!=(const Layout &other) const { return !(*this == other); }
};

/// A mesh and the atoms, that is, the indivisible parts, of its axes.
class MeshAxes {
public:
  MeshAxes() = default;
  /// Splits the axes of `mesh` into atoms, such that each axis or sub-axis in
  /// `refs` consists of consecutive atoms.
  MeshAxes(mlir::FlatSymbolRefAttr name, MeshAttr mesh,
           llvm::ArrayRef<AxisRefAttr> refs = {});

  /// Returns the only mesh of a module. Its axes are split into atoms such that
  /// each axis and sub-axis in the module's attributes consists of consecutive
  /// atoms. It is an error if the module has no mesh or more than one.
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

  /// Returns the atoms (indivisible parts) of which an axis or sub-axis
  /// consists, the major one first.
  Axes decompose(AxisRefAttr ref) const;
  Axes decompose(llvm::ArrayRef<AxisRefAttr> refs) const;
  /// Returns the atoms (indivisible parts) of the mesh axis named `axis`, or an
  /// empty list if the mesh has no such axis.
  Axes named(llvm::StringRef axis) const;

  /// Returns an equal list of axes in canonical form: adjacent parts of one
  /// axis are merged.
  AxisListAttr list(llvm::ArrayRef<Axis> axes) const;
  AxisListAttr list(AxisSet set) const { return list(listOf(set)); }

  Layout layout(ShardingAttr sharding) const;
  /// Converts the layout to an attribute. `open` says which dimensions
  /// propagation may still split.
  ShardingAttr sharding(const Layout &layout,
                        llvm::ArrayRef<bool> open = {}) const;

  /// Returns the shape of a tile of a tensor of `shape`.
  llvm::SmallVector<int64_t> tile(const Layout &layout,
                                  llvm::ArrayRef<int64_t> shape) const;
  mlir::RankedTensorType tile(const Layout &layout,
                              mlir::RankedTensorType type) const;

  /// Compares the tiles of a dimension of `size` elements that is split by
  /// `major` with the smaller tiles after a further split by `minor`. Returns
  /// whether each larger tile consists of whole smaller tiles. This is always
  /// true if `major` is empty.
  bool nests(int64_t size, llvm::ArrayRef<Axis> major,
             llvm::ArrayRef<Axis> minor) const;

  /// Returns the axes over which ranks must exchange elements, or select among
  /// the elements that they hold, to convert a tensor of `shape` from one
  /// layout to the other.
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
