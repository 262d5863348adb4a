//===- VariancePadding.h - the padding of values ----------------*- C++ -*-===//
//
// The part of dist-verify-variance that proves that padding is masked. For each
// value it tracks the dimensions whose last tiles end in padding, with the
// unsharded size of the dimension, the axes that number the tiles, and the
// content of the padding. Sizes come from `dist.global_type`, exchanges,
// windows and masks; if a dimension has no padding, its size follows from the
// tile and the axes that split it.
//
// Padding is not checked in a dimension whose unsharded size the program does
// not determine. This concerns arguments without a global type, and results of
// three kinds: of scatters, of reshapes of one-element tiles, and of slices of
// tiles that do not nest. If such a dimension is merged with others, the merged
// dimension is not checked either.
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

/// The extent of one dimension of a local value. If it is padded, element i of
/// tile t is element t * (local size) + i of `size`; elements beyond `size` are
/// padding.
struct Extent {
  enum Kind : uint8_t {
    Free,    // a constant or an iota: a tile as well as the whole
    Real,    // no padding
    Unknown, // padding or not
    Windows, // the windows from which the tiles of a dimension of `size` are
             // computed
    Padded,
  };
  Kind kind = Real;
  /// For `Real`, 0 if unknown.
  int64_t size = 0, ways = 1;
  /// The axes that number the tiles, major first. They are known only if
  /// `placed` is true.
  dist::Axes axes;
  bool placed = true;
  /// The content of all padding; null: anything.
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

/// The axis in its printed form: "x" or "x":(1)2.
std::string axisName(const dist::MeshAxes &mesh, dist::Axis axis);

/// Describes how an operation reads a dimension by index: operand `indices`
/// selects elements along `dim` of operand `table`.
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

  // Boundaries.
  mlir::LogicalResult enter(mlir::func::FuncOp func);
  mlir::LogicalResult leave(mlir::func::FuncOp func) const;

  // These functions handle operations. Each reports an error if an operation
  // would combine padding with elements.
  void visitConstant(mlir::Operation *op);
  mlir::LogicalResult visit(mlir::Operation *op, const ShardingRule &rule);
  mlir::LogicalResult visitCollective(mlir::Operation *op,
                                      llvm::ArrayRef<dist::Axis> axes);
  void visitPlace(mlir::Operation *op, llvm::ArrayRef<dist::Axis> axes);

  // These functions handle loops and branches. A value that a loop carries, or
  // that branches yield, has the layout of both `init` and the yielded values.
  void carry(mlir::Value init, mlir::Value argument);
  /// `element` is one element of `whole` along dimension 0.
  void slice(mlir::Value whole, mlir::Value element);
  /// `whole` has values like `element` along dimension 0.
  void stack(mlir::Value element, mlir::Value whole);
  mlir::LogicalResult merge(mlir::Operation *op, mlir::Value value,
                            mlir::Value yielded);
  /// Returns whether the padding of a loop's block argument is now known more
  /// precisely than when the loop's body was visited, so that the body must be
  /// visited again.
  bool learn(mlir::Value argument, mlir::Value result);

private:
  /// A mask as described by its condition.
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
  /// Merges `other` into `into`. Returns false if the two contradict each
  /// other: the unsharded sizes differ, or the tiles are numbered by different
  /// axes.
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
