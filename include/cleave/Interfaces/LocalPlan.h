// The partitioner's side of ShardingRuleInterface::planLocal: what an operation
// is told about its split, and the helpers with which it builds its local form.
//
// Layouts follow from the axes of the factors: a dimension is split by the axes
// of its factors, major first. A dimension of N elements split n ways has
// tiles of ceil(N / n) on every rank; what is past N is padding of undefined
// content, so whoever reduces over a padded factor masks it first.

#ifndef CLEAVE_INTERFACES_LOCALPLAN_H
#define CLEAVE_INTERFACES_LOCALPLAN_H

#include "cleave/Dialect/Dist/IR/Layout.h"
#include "cleave/Interfaces/Interfaces.h"

namespace cleave {

/// The layout of a tensor of `dims` when each factor is split by its axes. No
/// partial axes.
dist::Layout layoutOf(const TensorFactors &dims,
                      llvm::ArrayRef<dist::Axes> factorAxes);

/// Whether a split of the factors by these axes is exact in a dimension made of
/// them: only a dimension of one factor may have padding, and a factor
/// may be split only if those major to it are split to single elements.
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

  // Operands and results, in the layouts of the factors.
  mlir::Value operand(unsigned index) const { return operands[index]; }
  llvm::ArrayRef<mlir::Value> localOperands() const { return operands; }
  void setOperand(unsigned index, mlir::Value value) {
    operands[index] = value;
  }
  mlir::RankedTensorType localType(mlir::RankedTensorType type,
                                   const TensorFactors &dims) const;
  mlir::RankedTensorType operandType(unsigned index) const;
  mlir::RankedTensorType resultType(unsigned index) const;

  /// The answer of planLocal: one local value for each result.
  void setResults(mlir::ValueRange values) {
    results.assign(values.begin(), values.end());
  }
  llvm::ArrayRef<mlir::Value> localResults() const { return results; }

  /// A split dimension of an operand of which every rank reads more than its
  /// tile and neighbours'.
  struct Gather {
    unsigned operand = 0;
    int64_t dim = 0, factor = 0, bytes = 0;
    std::string why;
  };
  /// Notes, for the user, that `value` is operand `operand` with dimension
  /// `dim` gathered over `factor`.
  void noteGather(unsigned operand, int64_t dim, int64_t factor,
                  mlir::Value value, std::string why);
  llvm::ArrayRef<Gather> gathers() const { return noted; }

  // Building blocks.
  /// The global index at which this rank's tile of a factor begins:
  /// tensor<i64>.
  mlir::Value offset(int64_t factor);
  /// A tensor of `type` (integers) that holds, at each element, the global
  /// index along dimension `dim`, which is split as `factor`.
  mlir::Value globalIndex(mlir::RankedTensorType type, int64_t dim,
                          int64_t factor);
  /// `value`, of dimensions `dims`, with the padding of `factor` replaced by
  /// the identity of `combiner`. The value itself where there is no padding.
  mlir::Value masked(mlir::Value value, const TensorFactors &dims,
                     int64_t factor, FactorCombiner combiner);
  /// `value`, of dimensions `dims`, with the padding of `factor` replaced by
  /// the splat `filler`: a mask that only saves work, without dist.pad_mask.
  mlir::Value filled(mlir::Value value, const TensorFactors &dims,
                     int64_t factor, mlir::TypedAttr filler);
  /// All-reduces over the axes of a factor; the value itself where it is whole.
  mlir::Value allReduce(mlir::Value value, dist::ReduceKind kind,
                        int64_t factor, dist::Purpose purpose);
  /// Of `value`, whose dimension `dim` is a tile of `size` elements split as
  /// `factor`: rank r receives elements base + r * step + i * stride for i
  /// below `length`, zeros outside. The window of rank 0 where the factor is
  /// whole. The tiles computed from them are of a dimension of `whole`
  /// elements.
  mlir::Value window(mlir::Value value, int64_t dim, int64_t factor,
                     int64_t size, int64_t base, int64_t step, int64_t stride,
                     int64_t length, int64_t whole);
  /// Repeats a rank-0 tensor over `type`'s shape.
  mlir::Value splat(mlir::Value scalar, mlir::RankedTensorType type);
  /// A constant of `type`, all elements equal.
  mlir::Value constant(mlir::RankedTensorType type, double value);
  /// A copy of the operation on the local operands, with the local result
  /// types.
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

/// How a combiner that is not None reduces.
dist::ReduceKind reduceKindOf(FactorCombiner combiner);

/// The identity of a combiner in an element type: 0, the lowest or the highest.
mlir::TypedAttr identityOf(FactorCombiner combiner,
                           mlir::RankedTensorType type);

} // namespace cleave

#endif
