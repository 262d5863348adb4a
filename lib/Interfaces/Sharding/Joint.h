// The per-rank code of operations, such as softmax, that reduce along a split
// dimension. Each rank reduces its tile with padding masked, and an all-reduce
// combines the results of the ranks. The dimension is never gathered.

#ifndef CLEAVE_LIB_INTERFACES_SHARDING_JOINT_H
#define CLEAVE_LIB_INTERFACES_SHARDING_JOINT_H

#include "Model.h"
#include "cleave/Interfaces/TensorExpr.h"

namespace cleave::sharding {

/// Builds the per-rank code of a formula, such as the one of softmax. All its
/// reductions run along one dimension, which is split over ranks as `factor`.
/// Each rank reduces its tile, and an all-reduce combines the results of these
/// ranks.
class JointExpr : public TensorExpr {
public:
  JointExpr(LocalPlan &plan, int64_t factor, dist::Purpose purpose)
      : TensorExpr(plan.builder(), plan.loc()), plan(plan), factor(factor),
        purpose(purpose) {}

  using TensorExpr::splat;
  /// Builds a splat. If the element type cannot represent the number, the exact
  /// number is rounded by an operation, so that a reader that extends the splat
  /// again can use the exact number.
  mlir::Value splat(mlir::RankedTensorType type, double value) override;
  mlir::Value reduce(nn::Combiner combiner, mlir::Value value,
                     int64_t dim) override;
  int64_t extent(mlir::Value, int64_t) override {
    return plan.rule().factors[factor].size;
  }
  mlir::Value index(mlir::RankedTensorType type, int64_t dim) override {
    return plan.globalIndex(type, dim, factor);
  }

private:
  LocalPlan &plan;
  int64_t factor;
  dist::Purpose purpose;
};

/// Emits the per-rank code of an operation that `Formula` defines and that
/// reduces along `factor` only. If this factor is not split, the code is the
/// same operation on tiles.
template <typename Op, Decomposed (*Formula)(Op, TensorExpr &)>
mlir::LogicalResult planJoint(LocalPlan &plan, int64_t factor,
                              dist::Purpose purpose) {
  mlir::Operation *local = plan.cloneLocal();
  if (!plan.isSplit(factor)) {
    plan.setResults(local->getResults());
    return mlir::success();
  }
  JointExpr expr(plan, factor, purpose);
  Decomposed results = Formula(mlir::cast<Op>(local), expr);
  local->erase();
  if (mlir::succeeded(results))
    plan.setResults(*results);
  return results;
}

} // namespace cleave::sharding

#endif
