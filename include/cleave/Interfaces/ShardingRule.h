// Sharding rules: how the dimensions of operands and results are made of
// factors, and what each factor allows.
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
  /// operands give partial results. With combiner None, planLocal combines over
  /// the factor itself, by joint reductions (softmax, norms), and the operation
  /// on one tile alone would give wrong results.
  Reduction,
  /// The factor must not be split.
  NeedReplication,
  /// The factor may be split, but tiles move between ranks (slice, concat,
  /// reverse, ...).
  Permutation,
};

/// How the partial values of a result that lacks a split factor are combined.
/// With None, the result is the same on all ranks of the split.
enum class FactorCombiner { None, Sum, Max, Min };

struct Factor {
  int64_t size = 1;
  FactorKind kind = FactorKind::PassThrough;
  FactorCombiner combiner = FactorCombiner::None;
  /// True if an element also depends on its index along the factor (iota,
  /// dropout), so that equal operands do not give equal results.
  bool indexed = false;
  /// True if elements along the factor may be permuted in all operands and
  /// results without any other change. The operation may need all elements, but
  /// an operand gives it their order.
  bool unordered = false;
};

/// The factors of one dimension, major to minor; empty for a dimension of size
/// 1 that is broadcast.
using DimFactors = llvm::SmallVector<int64_t, 2>;
/// The factors of each dimension of a tensor.
using TensorFactors = llvm::SmallVector<DimFactors, 4>;

struct ShardingRule {
  llvm::SmallVector<Factor> factors;
  llvm::SmallVector<TensorFactors> operands, results;
  /// Groups of operands in which the operation is jointly linear while other
  /// operands are fixed: {0, 1} for an addition, {0} and {1} for a product.
  /// Partial sums of all operands of a group give partial sums of the results.
  llvm::SmallVector<llvm::SmallVector<unsigned, 2>, 2> linear;
  /// True if the operation only moves elements of the group, so that candidates
  /// of a maximum or minimum pass through it just as partial sums do.
  bool movement = false;
  /// True if the operation selects, element by element, among the operands of
  /// the group, so that partial values pass through it as well.
  bool chooses = false;
  /// Operands that the operation waits for and does not read, so that they may
  /// have any layout.
  llvm::SmallVector<unsigned, 1> waited;

  /// Adds a factor and returns its index.
  int64_t addFactor(int64_t size, FactorKind kind = FactorKind::PassThrough,
                    FactorCombiner combiner = FactorCombiner::None) {
    factors.push_back({size, kind, combiner, false});
    return factors.size() - 1;
  }
  /// Returns the group of operands that contains `operand`, or an empty list if
  /// there is none.
  llvm::ArrayRef<unsigned> groupOf(unsigned operand) const;
  /// Returns whether the operation adds `operand` to other operands.
  bool isTerm(unsigned operand) const { return groupOf(operand).size() > 1; }
  /// Returns the operation's own rule, or the rule `replicated` if it has none.
  static ShardingRule of(mlir::Operation *op);
  /// Returns a rule that keeps every dimension of every operand and result
  /// unsplit.
  static ShardingRule replicated(mlir::Operation *op);
};

/// Returns whether the operation combines over the factor while it runs: the
/// operation cannot run on a tile alone, but its local form can.
inline bool isJoint(const Factor &factor) {
  return factor.kind == FactorKind::Reduction &&
         factor.combiner == FactorCombiner::None;
}

/// The partitioner's view of one operation; see cleave/Interfaces/LocalPlan.h.
class LocalPlan;

/// The default implementation of ShardingRuleInterface::planLocal.
llvm::LogicalResult planLocalByCloning(mlir::Operation *op, LocalPlan &plan);

} // namespace cleave

#endif
