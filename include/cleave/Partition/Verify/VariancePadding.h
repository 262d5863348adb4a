//===- VariancePadding.h - where values end in padding ----------*- C++ -*-===//
//
// The part of dist-verify-variance that proves padding masked. For each value
// it knows the dimensions whose last tiles end in padding, how many elements
// the whole dimension has, which axes number the tiles, and what the padding
// holds. Sizes come from `dist.global_type`, exchanges, windows and masks; of
// dimensions without padding, from the tile and the axes that split it.
//
// Nothing is claimed of a dimension of which the program does not tell the
// size: results of scatters, reshapes of tiles of one element, dimensions that
// merge these, slices of tiles that do not nest, arguments without a whole
// type.
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

/// What one dimension of a local value holds. Of a padded one, element i of the
/// tile with number t is element t * (local size) + i of `size`; those beyond
/// are padding.
struct Extent {
  enum Kind : uint8_t {
    Free,    // a constant or a count: a tile as well as the whole
    Real,    // no padding
    Unknown, // padding or not
    Windows, // what the tiles of a dimension of `size` are computed from
    Padded,
  };
  Kind kind = Real;
  /// Of a real one, 0 where it is not known.
  int64_t size = 0, ways = 1;
  /// The axes that number the tiles, major first; not known where not `placed`.
  dist::Axes axes;
  bool placed = true;
  /// What all of the padding is; null: anything.
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

/// One for each dimension.
using Extents = llvm::SmallVector<Extent, 4>;

/// The axis as it is written: "x" or "x":(1)2.
std::string axisName(const dist::MeshAxes &mesh, dist::Axis axis);

/// Where an operation reads a dimension by index: operand `indices` says which
/// elements along `dim` of operand `table`.
struct Lookup {
  unsigned table = 0, indices = 1;
  int64_t dim = 0;

  static std::optional<Lookup> of(mlir::Operation *op);
};

/// Whether what padding holds is known to be 0.
bool isZero(mlir::Attribute filler);

class Padding {
public:
  Padding(const dist::MeshAxes &mesh,
          const llvm::DenseMap<mlir::Value, State> &states)
      : mesh(mesh), states(states) {}

  // Boundaries.
  mlir::LogicalResult enter(mlir::func::FuncOp func);
  mlir::LogicalResult leave(mlir::func::FuncOp func) const;

  // Operations; each reports padding that it would mix with elements.
  void visitConstant(mlir::Operation *op);
  mlir::LogicalResult visit(mlir::Operation *op, const ShardingRule &rule);
  mlir::LogicalResult visitCollective(mlir::Operation *op,
                                      llvm::ArrayRef<dist::Axis> axes);
  void visitPlace(mlir::Operation *op, llvm::ArrayRef<dist::Axis> axes);

  // Loops and branches: what is carried has the layout of `init` and of what is
  // yielded.
  void carry(mlir::Value init, mlir::Value argument);
  mlir::LogicalResult merge(mlir::Operation *op, mlir::Value value,
                            mlir::Value yielded);
  /// Whether more is known of the argument now than was when its block was
  /// read.
  bool learn(mlir::Value argument, mlir::Value result);

private:
  /// A mask, as its condition says.
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
  /// False where the wholes have other sizes, or other ranks have the tiles.
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
  /// Values that have no entry are real in all dimensions.
  llvm::DenseMap<mlir::Value, Extents> extents;
};

} // namespace cleave::partition

#endif // CLEAVE_PARTITION_VERIFY_VARIANCEPADDING_H
