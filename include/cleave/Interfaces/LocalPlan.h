// The interface between the partitioner and ShardingRuleInterface::planLocal:
// the description of how an operation is split, and helpers that build the
// operation's local form, that is, the per-rank code that replaces it.
//
// Layouts follow from the axes of the factors: a dimension is split by the axes
// of its factors, major first. A dimension of N elements split n ways has tiles
// of ceil(N / n) elements on every rank. Elements after the first N are padding
// with undefined content, so every reduction over a padded factor masks the
// padding first.

#ifndef CLEAVE_INTERFACES_LOCALPLAN_H
#define CLEAVE_INTERFACES_LOCALPLAN_H

#include "cleave/Dialect/Dist/IR/Layout.h"
#include "cleave/Interfaces/Interfaces.h"

namespace cleave {

/// Returns the layout of a tensor whose dimensions have the factors `dims` if
/// each factor is split by its entry of `factorAxes`. The layout has no partial
/// axes.
dist::Layout layoutOf(const TensorFactors &dims,
                      llvm::ArrayRef<dist::Axes> factorAxes);

/// Returns whether equal tiles of a dimension can represent a split of its
/// factors by the axes in `factorAxes`. If a dimension has several factors, the
/// split must need no padding, and a factor may be split only if all factors
/// major to it are split into single elements.
bool isExpressible(const DimFactors &dim, const ShardingRule &rule,
                   llvm::ArrayRef<dist::Axes> factorAxes,
                   const dist::MeshAxes &mesh);

/// One operation being partitioned.
class LocalPlan {
public:
  LocalPlan(mlir::Operation *op, mlir::OpBuilder &builder,
            const dist::MeshAxes &mesh, const ShardingRule &rule,
            llvm::ArrayRef<dist::Axes> factorAxes,
            llvm::ArrayRef<mlir::Value> operands);

  mlir::Operation *op() const { return global; }
  mlir::OpBuilder &builder() { return rewriter; }
  mlir::Location loc() const { return global->getLoc(); }
  const dist::MeshAxes &mesh() const { return axes; }
  const ShardingRule &rule() const { return factors; }

  // Factors.
  llvm::ArrayRef<dist::Axis> axesOf(int64_t factor) const {
    return factorAxes[factor];
  }
  bool isSplit(int64_t factor) const { return !factorAxes[factor].empty(); }
  int64_t ways(int64_t factor) const { return axes.size(factorAxes[factor]); }
  int64_t tile(int64_t factor) const {
    return dist::tileSize(factors.factors[factor].size, ways(factor));
  }
  bool isPadded(int64_t factor) const {
    return tile(factor) * ways(factor) != factors.factors[factor].size;
  }

  // The local operands and the local types of operands and results: the tiles
  // that result if each factor is split by its axes.
  mlir::Value operand(unsigned index) const { return operands[index]; }
  llvm::ArrayRef<mlir::Value> localOperands() const { return operands; }
  void setOperand(unsigned index, mlir::Value value) {
    operands[index] = value;
  }
  mlir::RankedTensorType localType(mlir::RankedTensorType type,
                                   const TensorFactors &dims) const;
  mlir::RankedTensorType operandType(unsigned index) const;
  mlir::RankedTensorType resultType(unsigned index) const;

  /// Sets the result of planLocal: one local value for each result.
  void setResults(mlir::ValueRange values) {
    results.assign(values.begin(), values.end());
  }
  llvm::ArrayRef<mlir::Value> localResults() const { return results; }

  /// A dimension of an operand that had to be gathered: it is sharded, but
  /// every rank reads more of it than its own tile and the adjacent tiles.
  /// `bytes` is the size of the gathered operand, and `why` the reason for the
  /// remark.
  struct Gather {
    unsigned operand = 0;
    int64_t dim = 0, factor = 0, bytes = 0;
    std::string why;
  };
  /// Records, for a remark to the user, that operand `operand` had to be
  /// gathered along dimension `dim` over the axes of `factor`, and that `value`
  /// is the gathered operand.
  void noteGather(unsigned operand, int64_t dim, int64_t factor,
                  mlir::Value value, std::string why);
  llvm::ArrayRef<Gather> gathers() const { return noted; }

  // The functions from here on emit operations of a local form. `offset`
  // returns the global index at which this rank's tile of a factor begins:
  // tensor<i64>.
  mlir::Value offset(int64_t factor);
  /// Returns a tensor of `type` in which each element has the value of its
  /// global index along dimension `dim`, which is split like `factor`.
  mlir::Value globalIndex(mlir::RankedTensorType type, int64_t dim,
                          int64_t factor);
  /// Replaces padding before a reduction: returns `value`, whose dimensions
  /// have the factors `dims`, with the padding of `factor` replaced by the
  /// identity of `combiner`. Returns `value` itself if `factor` has no padding.
  mlir::Value masked(mlir::Value value, const TensorFactors &dims,
                     int64_t factor, FactorCombiner combiner);
  /// Returns `value`, whose dimensions have the factors `dims`, with the
  /// padding of `factor` replaced by copies of the scalar `filler`. It is for
  /// callers that only save work by it and are correct without it, so the mask
  /// is not marked with dist.pad_mask.
  mlir::Value filled(mlir::Value value, const TensorFactors &dims,
                     int64_t factor, mlir::TypedAttr filler);
  /// All-reduces a value over the axes of a factor; returns the value itself if
  /// the factor is not split.
  mlir::Value allReduce(mlir::Value value, dist::ReduceKind kind,
                        int64_t factor, dist::Purpose purpose);
  /// Emits windows of `value`. Dimension `dim` of `value` is a tile, split like
  /// `factor`, of a dimension of `size` elements. Rank r receives the elements
  /// base + r * step + i * stride for i below `length`, and zeros where this
  /// index is outside the dimension. If the factor is not split, the result is
  /// the window of rank 0. `whole` is the unsharded size of the dimension that
  /// is computed from the windows.
  mlir::Value window(mlir::Value value, int64_t dim, int64_t factor,
                     int64_t size, int64_t base, int64_t step, int64_t stride,
                     int64_t length, int64_t whole);
  /// Broadcasts a rank-0 tensor to `type`'s shape.
  mlir::Value splat(mlir::Value scalar, mlir::RankedTensorType type);
  /// Returns a constant of `type` with all elements equal.
  mlir::Value constant(mlir::RankedTensorType type, double value);
  /// Clones the operation with the local operands and the local result types.
  mlir::Operation *cloneLocal();

private:
  mlir::Operation *global;
  mlir::OpBuilder &rewriter;
  const dist::MeshAxes &axes;
  const ShardingRule &factors;
  llvm::ArrayRef<dist::Axes> factorAxes;
  llvm::SmallVector<mlir::Value> operands, results;
  llvm::SmallVector<Gather, 0> noted;
};

/// Returns the kind of reduction for a combiner other than None.
dist::ReduceKind reduceKindOf(FactorCombiner combiner);

/// Returns the identity of a combiner for the element type of `type`: 0 for a
/// sum, the lowest value for a maximum, the highest value for a minimum.
mlir::TypedAttr identityOf(FactorCombiner combiner,
                           mlir::RankedTensorType type);

} // namespace cleave

#endif
