//===- VariancePadding.h - the padding of values ----------------*- C++ -*-===//
//
// The pass dist-verify-variance uses this class to prove that padding is
// masked. If a dimension is not divisible by the number of its tiles, its last
// tiles end in padding. For each such dimension of a value, the class tracks
// the unsharded size, the mesh axes over which the dimension is sharded (the
// coordinates on these axes give the number of a rank's tile), and the content
// of the padding.
//
// The unsharded size is read from `dist.global_type`, dist.exchange,
// dist.window and masks. Without padding, it is the size of a tile times the
// number of tiles.
//
// Some programs do not determine the unsharded size of a dimension. The padding
// of such a dimension is not checked. These are dimensions of:
//
// - arguments without `dist.global_type`,
// - results of scatters,
// - results of reshapes of tiles with one element,
// - results of a dist.slice that splits tiles into tiles, if the size of the
//   larger tiles is not divisible by the number of smaller tiles.
//
// If a reshape merges such a dimension with others, the merged dimension is not
// checked either.
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_PARTITION_VERIFY_VARIANCEPADDING_H
#define CLEAVE_PARTITION_VERIFY_VARIANCEPADDING_H

#include "cleave/Partition/Verify/AxisState.h"

#include "cleave/Interfaces/ShardingRule.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

namespace cleave::partition {

/// The size and the padding of one dimension of a rank's value. If the
/// dimension is padded, element i of tile t is element t * (size of a tile) + i
/// of the unsharded dimension; elements from `size` on are padding.
struct Extent {
  enum Kind : uint8_t {
    Free,    // a constant or an iota, which may be a tile or unsharded
    Real,    // no padding
    Unknown, // it is not known whether there is padding
    Windows, // a window from dist.window (such as a tile with halos), from
             // which the rank computes a tile of a dimension of `size` elements
    Padded,  // the last tiles end in padding
  };
  Kind kind = Real;
  /// The unsharded size of the dimension (for `Real`, 0 if it is unknown), and
  /// the number of tiles.
  int64_t size = 0, ways = 1;
  /// The mesh axes over which the dimension is sharded, major first: a rank's
  /// coordinates on these axes give the number of its tile. `axes` is valid
  /// only if `placed` is true.
  dist::Axes axes;
  bool placed = true;
  /// The value of all elements in the padding; null if it is unknown.
  mlir::Attribute filler;

  static Extent of(Kind kind) {
    Extent extent;
    extent.kind = kind;
    return extent;
  }
  static Extent padded(int64_t size, int64_t ways,
                       llvm::ArrayRef<dist::Axis> axes,
                       mlir::Attribute filler = {}) {
    Extent extent = of(Padded);
    extent.size = size;
    extent.ways = ways;
    extent.axes.assign(axes.begin(), axes.end());
    extent.filler = filler;
    return extent;
  }
};

/// One extent for each dimension.
using Extents = llvm::SmallVector<Extent, 4>;

/// Returns the axis as text: `x` or, for a sub-axis, `x:(1)2`.
std::string axisName(const dist::MeshAxes &mesh, dist::Axis axis);

/// Describes an operation that reads elements at given indices: operand number
/// `indices` has the indices, along dimension `dim` of operand number `table`.
struct Lookup {
  unsigned table = 0, indices = 1;
  int64_t dim = 0;

  static std::optional<Lookup> of(mlir::Operation *op);
};

/// Whether the padding is known to be 0.
bool isZero(mlir::Attribute filler);

class Padding {
public:
  Padding(const dist::MeshAxes &mesh,
          const llvm::DenseMap<mlir::Value, State> &states)
      : mesh(mesh), states(states) {}

  // `enter` sets the extents of a function's arguments, `leave` checks those of
  // its results.
  mlir::LogicalResult enter(mlir::func::FuncOp func);
  mlir::LogicalResult leave(mlir::func::FuncOp func) const;

  // These functions compute the extents of an operation's results. They report
  // an error if the operation would combine padding with elements.
  void visitConstant(mlir::Operation *op);
  mlir::LogicalResult visit(mlir::Operation *op, const ShardingRule &rule);
  mlir::LogicalResult visitCollective(mlir::Operation *op,
                                      llvm::ArrayRef<dist::Axis> axes);
  void visitPlace(mlir::Operation *op, llvm::ArrayRef<dist::Axis> axes);

  // These functions handle loops and branches. A tensor that a loop carries, or
  // that branches yield, has one layout: that of its initial value `init` and
  // of the yielded values.
  void carry(mlir::Value init, mlir::Value argument);
  /// `element` is one element of `whole` along dimension 0.
  void slice(mlir::Value whole, mlir::Value element);
  /// `whole` consists of values with the extents of `element`, along a new
  /// dimension 0.
  void stack(mlir::Value element, mlir::Value whole);
  /// Merges the extents of `yielded`, a value that a region of `op` yields,
  /// into those of `value`, which represents the same tensor. Reports an error
  /// if they contradict each other.
  mlir::LogicalResult merge(mlir::Operation *op, mlir::Value value,
                            mlir::Value yielded);
  /// Updates the extents of a loop's block argument from those of the loop's
  /// result. Returns whether more is now known than when the loop's body was
  /// visited, so that the body must be visited again.
  bool learn(mlir::Value argument, mlir::Value result);

private:
  /// An arith.select that masks padding: it replaces the elements whose global
  /// index along dimension `dim` is `size` or more by `filler`. `tile` and
  /// `axes` are the size of a tile and the mesh axes that shard the dimension,
  /// according to the condition of the select.
  struct Mask {
    int64_t dim, size, tile;
    dist::Axes axes;
    mlir::Attribute filler;
  };

  const Extent &at(mlir::Value value, int64_t dim) const;
  Extents all(mlir::Value value) const;
  void set(mlir::Value value, Extents extents);
  Extents declared(dist::ShardingAttr sharding,
                   llvm::ArrayRef<int64_t> whole) const;
  bool isSplit(mlir::Value value, int64_t dim) const;
  Extent sized(mlir::Value value, int64_t dim) const;
  dist::Axes counted(llvm::ArrayRef<dist::Axis> axes) const;
  std::string describe(const Extent &extent) const;
  /// Merges `other` into `into`, two extents of the same dimension. Returns
  /// false if they contradict each other, because the unsharded sizes or the
  /// mesh axes differ.
  static bool join(Extent &into, const Extent &other);
  mlir::LogicalResult mustBe(mlir::Operation *op, unsigned operand, int64_t dim,
                             FactorCombiner combiner) const;

  mlir::LogicalResult checkFactors(mlir::Operation *op,
                                   const ShardingRule &rule,
                                   llvm::ArrayRef<Extent> factors) const;
  std::optional<Mask> maskOf(mlir::arith::SelectOp op) const;
  mlir::LogicalResult visitMask(mlir::arith::SelectOp op, const Mask &mask);
  mlir::LogicalResult visitReshape(mlir::Operation *op);
  mlir::LogicalResult movedExtent(mlir::Operation *op, int64_t dim,
                                  Extent &moved) const;
  static Extent tileOf(const Extent &windows, int64_t length);
  mlir::LogicalResult visitLookup(mlir::Operation *op, const Lookup &lookup,
                                  Extents &result) const;

  Extent splitBy(Extent extent, int64_t from, int64_t to,
                 llvm::ArrayRef<dist::Axis> axes, bool isSplit) const;
  Extent gatheredBy(Extent extent, int64_t to,
                    llvm::ArrayRef<dist::Axis> axes) const;
  mlir::LogicalResult visitWindow(dist::WindowOp op, Extent &extent,
                                  llvm::ArrayRef<dist::Axis> axes) const;
  void permute(Extent &extent, llvm::ArrayRef<int64_t> pairs,
               llvm::ArrayRef<dist::Axis> axes) const;

  const dist::MeshAxes &mesh;
  const llvm::DenseMap<mlir::Value, State> &states;
  /// Values without an entry have no padding in any dimension.
  llvm::DenseMap<mlir::Value, Extents> extents;
};

} // namespace cleave::partition

#endif // CLEAVE_PARTITION_VERIFY_VARIANCEPADDING_H
