// Helpers of the sharding rule files: attaching functions as external models,
// and common rules.

#ifndef CLEAVE_LIB_INTERFACES_SHARDING_MODEL_H
#define CLEAVE_LIB_INTERFACES_SHARDING_MODEL_H

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/LocalPlan.h"
#include "cleave/Support/ValueUtils.h"

namespace cleave::sharding {

/// Implements ShardingRuleInterface for `Op` by a function. The per-rank code
/// of the operation is the default: the same operation on tiles.
template <typename Op, ShardingRule (*Rule)(Op)>
struct RuleModel
    : ShardingRuleInterface::ExternalModel<RuleModel<Op, Rule>, Op> {
  ShardingRule getShardingRule(mlir::Operation *op) const {
    return Rule(mlir::cast<Op>(op));
  }
};

/// Implements ShardingRuleInterface for `Op` by two functions: `Rule` returns
/// the sharding rule, and `Plan` emits the per-rank code.
template <typename Op, ShardingRule (*Rule)(Op),
          mlir::LogicalResult (*Plan)(Op, LocalPlan &)>
struct PlanModel
    : ShardingRuleInterface::ExternalModel<PlanModel<Op, Rule, Plan>, Op> {
  ShardingRule getShardingRule(mlir::Operation *op) const {
    return Rule(mlir::cast<Op>(op));
  }
  mlir::LogicalResult planLocal(mlir::Operation *op, LocalPlan &plan) const {
    return Plan(mlir::cast<Op>(op), plan);
  }
};

template <typename Op, ShardingRule (*Rule)(Op)>
void attach(mlir::MLIRContext *context) {
  Op::template attachInterface<RuleModel<Op, Rule>>(*context);
}
template <typename Op, ShardingRule (*Rule)(Op),
          mlir::LogicalResult (*Plan)(Op, LocalPlan &)>
void attach(mlir::MLIRContext *context) {
  Op::template attachInterface<PlanModel<Op, Rule, Plan>>(*context);
}

inline FactorCombiner factorCombiner(nn::Combiner combiner) {
  return combiner == nn::Combiner::Sum   ? FactorCombiner::Sum
         : combiner == nn::Combiner::Max ? FactorCombiner::Max
                                         : FactorCombiner::Min;
}

/// Adds one factor for each dimension of `shape`.
TensorFactors addFactors(ShardingRule &rule, llvm::ArrayRef<int64_t> shape,
                         FactorKind kind = FactorKind::PassThrough,
                         FactorCombiner combiner = FactorCombiner::None);

/// Returns the rule of an elementwise operation, whose operands and results all
/// have the same shape. An operand may instead be a scalar (a tensor of rank
/// 0), which has no factors.
ShardingRule elementwise(mlir::Operation *op);

/// Each function attaches the sharding rules of one family of operations.
void attachElementwise(mlir::MLIRContext *context);
void attachShape(mlir::MLIRContext *context);
void attachControl(mlir::MLIRContext *context);
void attachConvolution(mlir::MLIRContext *context);
void attachContraction(mlir::MLIRContext *context);
void attachIndexing(mlir::MLIRContext *context);
void attachRows(mlir::MLIRContext *context);
void attachAttention(mlir::MLIRContext *context);
void attachExperts(mlir::MLIRContext *context);
void attachTraining(mlir::MLIRContext *context);
void attachPipe(mlir::MLIRContext *context);

} // namespace cleave::sharding

#endif
