// Sharding rules: how the dimensions of operands and results are made of
// factors, and whether and how each factor may be split.
//
// Example: "bsh,hnd->bsnd" has the factors b, s, h, n, d. The dimensions of the
// left operand are [b] [s] [h]; h is a reduction with combiner sum, while b, s,
// n and d pass through. A reshape [6, 4] -> [24] has two factors of sizes 6 and
// 4; the result's only dimension consists of both factors, major first.

#ifndef CLEAVE_INTERFACES_SHARDINGRULE_H
#define CLEAVE_INTERFACES_SHARDINGRULE_H

#include "mlir/Support/LLVM.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>
#include <string>

namespace mlir {
class Operation;
}

namespace cleave {

enum class FactorKind {
  /// The factor is in operands and results: each tile of a result is computed
  /// from the same tile of the operands.
  PassThrough,
  /// The factor is in operands and is absent from some result: tiles of the
  /// operands give partial results. If the combiner is None, the operation on
  /// one tile alone would give wrong results (softmax, norms). Its planLocal
  /// then emits operations that reduce over all tiles of the factor.
  Reduction,
  /// The factor must not be split.
  NeedReplication,
  /// The factor may be split, but tiles move between ranks (slice, concat,
  /// reverse, ...).
  Permutation,
};

/// How the partial values of a result are combined if the result lacks a factor
/// that is split. With None, the result is the same on all ranks over which the
/// factor is split.
enum class FactorCombiner { None, Sum, Max, Min };

struct Factor {
  int64_t size = 1;
  FactorKind kind = FactorKind::PassThrough;
  FactorCombiner combiner = FactorCombiner::None;
  /// True if each element also depends on its global index along the factor, so
  /// that equal operands do not give equal results (iota, dropout).
  bool indexed = false;
  /// True if the operation stays correct when the elements along the factor are
  /// permuted in all operands and results alike, because the operation takes
  /// the order of the elements not from their indices but from an operand, such
  /// as the positions of tokens. The operation may still need all elements on
  /// each rank.
  bool unordered = false;
};

/// The factors of one dimension, major to minor, as indices into
/// ShardingRule::factors; empty for a dimension of size 1 that is broadcast.
using DimFactors = llvm::SmallVector<int64_t, 2>;
/// The factors of each dimension of a tensor.
using TensorFactors = llvm::SmallVector<DimFactors, 4>;

struct ShardingRule {
  llvm::SmallVector<Factor> factors;
  llvm::SmallVector<TensorFactors> operands, results;
  /// Groups of operands in which the operation is jointly linear while the
  /// other operands are fixed: {0, 1} for an addition, {0} and {1} for a
  /// product. If all operands of a group are partial sums, the results are
  /// partial sums.
  llvm::SmallVector<llvm::SmallVector<unsigned, 2>, 2> linear;
  /// True if the operation only moves elements of the operands in `linear`.
  /// Then partial maxima or minima pass through it just as partial sums do.
  bool movement = false;
  /// True if each element of the result is the corresponding element of one of
  /// the operands in `linear`, as in arith.select. Then partial maxima or
  /// minima pass through the operation just as partial sums do.
  bool chooses = false;
  /// The operands that the operation does not read but only waits for. They may
  /// have any layout.
  llvm::SmallVector<unsigned, 1> waited;

  /// Adds a factor and returns its index.
  int64_t addFactor(int64_t size, FactorKind kind = FactorKind::PassThrough,
                    FactorCombiner combiner = FactorCombiner::None) {
    factors.push_back({size, kind, combiner, false});
    return factors.size() - 1;
  }
  /// Returns the group of `linear` that contains `operand`, or an empty list if
  /// no group does.
  llvm::ArrayRef<unsigned> groupOf(unsigned operand) const;
  /// Returns whether the operation adds `operand` to other operands.
  bool isTerm(unsigned operand) const { return groupOf(operand).size() > 1; }
  /// Returns the operation's own rule, or replicated(op) if it has none.
  static ShardingRule of(mlir::Operation *op);
  /// Returns a rule that keeps every dimension of every operand and result
  /// unsplit.
  static ShardingRule replicated(mlir::Operation *op);
};

/// Returns whether the factor is a reduction with combiner None. The operation
/// combines all elements along such a factor while it runs, so it cannot run on
/// one tile alone, but the operations that planLocal emits in its place can.
inline bool isJoint(const Factor &factor) {
  return factor.kind == FactorKind::Reduction &&
         factor.combiner == FactorCombiner::None;
}

/// The partitioner's view of one operation while it is rewritten to work on
/// tiles; see cleave/Interfaces/LocalPlan.h.
class LocalPlan;

/// The default implementation of ShardingRuleInterface::planLocal.
llvm::LogicalResult planLocalByCloning(mlir::Operation *op, LocalPlan &plan);

} // namespace cleave

#endif
