// Sharding rules: how the dimensions of operands and results are made of
// factors, and what each factor allows.
//
// Example: "bsh,hnd->bsnd" has the factors b, s, h, n, d. The dimensions of the
// left operand are [b] [s] [h]; h is a reduction with combiner sum, the others
// pass through. A reshape [6, 4] -> [24] has two factors of sizes 6 and 4; the
// result's only dimension is made of both, major first.

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
  /// In results as in operands: each tile is computed from its own tiles.
  PassThrough,
  /// In operands, absent from some result: tiles of the operands give partial
  /// results. With combiner None planLocal combines over it itself, by joint
  /// reductions (softmax, norms); the operation on a tile alone would be wrong.
  Reduction,
  /// Must be whole in every tile.
  NeedReplication,
  /// May be split, but tiles move between ranks (slice, concat, reverse, ...).
  Permutation,
};

/// How the partial values of a result that lacks a split factor are combined.
/// None: the result is the same on all ranks of the split.
enum class FactorCombiner { None, Sum, Max, Min };

struct Factor {
  int64_t size = 1;
  FactorKind kind = FactorKind::PassThrough;
  FactorCombiner combiner = FactorCombiner::None;
  /// An element depends on its index along the factor, too (iota, dropout), so
  /// that the result does not repeat where the operands do.
  bool indexed = false;
  /// Where elements along the factor come in another order, in all operands and
  /// results, nothing else changes: though it may need all of them, the
  /// operation is told their order by an operand.
  bool unordered = false;
};

/// The factors of one dimension, major to minor; empty for a dimension of size
/// 1 that repeats.
using DimFactors = llvm::SmallVector<int64_t, 2>;
/// One entry per dimension.
using TensorFactors = llvm::SmallVector<DimFactors, 4>;

struct ShardingRule {
  llvm::SmallVector<Factor> factors;
  llvm::SmallVector<TensorFactors> operands, results;
  /// Groups of operands in which the operation is jointly linear, the others
  /// being fixed: {0, 1} for an addition; {0} and {1} for a product. Partial
  /// sums of all operands of a group give partial sums of the results.
  llvm::SmallVector<llvm::SmallVector<unsigned, 2>, 2> linear;
  /// The operation only places elements of the group, so that candidates of a
  /// maximum or minimum pass through it as well as partial sums do.
  bool movement = false;
  /// The operation chooses, element by element, among those of the group: they
  /// pass likewise.
  bool chooses = false;
  /// Operands that are waited for and not read: they may be anything.
  llvm::SmallVector<unsigned, 1> waited;

  /// Adds a factor and returns its index.
  int64_t addFactor(int64_t size, FactorKind kind = FactorKind::PassThrough,
                    FactorCombiner combiner = FactorCombiner::None) {
    factors.push_back({size, kind, combiner, false});
    return factors.size() - 1;
  }
  /// The group of operands that holds `operand`; empty where there is none.
  llvm::ArrayRef<unsigned> groupOf(unsigned operand) const;
  /// Whether the operation adds `operand` to others.
  bool isTerm(unsigned operand) const { return groupOf(operand).size() > 1; }
  /// What the operation answers; the rule below where it has no answer.
  static ShardingRule of(mlir::Operation *op);
  /// A rule that keeps every dimension of every operand and result whole.
  static ShardingRule replicated(mlir::Operation *op);
};

/// Whether an operation combines over the factor while it runs: it cannot run
/// on a tile alone, but its local form can.
inline bool isJoint(const Factor &factor) {
  return factor.kind == FactorKind::Reduction &&
         factor.combiner == FactorCombiner::None;
}

/// The partitioner's view of one operation; see cleave/Interfaces/LocalPlan.h.
class LocalPlan;

/// The default of ShardingRuleInterface::planLocal.
llvm::LogicalResult planLocalByCloning(mlir::Operation *op, LocalPlan &plan);

} // namespace cleave

#endif
