// Finds the routers of a model, which choose the experts of grouped products.

#include "Routers.h"

#include "cleave/Support/ValueUtils.h"

using namespace mlir;

namespace cleave::autodiff {

namespace {

bool isConstant(Value value) {
  while (auto broadcast = value.getDefiningOp<nn::BroadcastOp>())
    value = broadcast.getInput();
  return value.getDefiningOp<arith::ConstantOp>() != nullptr;
}

/// Returns whether the value is a tensor with one number per expert that is
/// broadcast over tokens.
bool isPerExpert(Value value) {
  auto broadcast = value.getDefiningOp<nn::BroadcastOp>();
  int64_t last = typeOf(value).getRank() - 1;
  return broadcast && broadcast.getDims() == ArrayRef<int64_t>{last};
}

/// Returns the value one step closer to the router's scores. A step is a mask
/// or the addition of a bias, applied to the scores before the experts are
/// chosen by comparison. Returns null for other operations.
Value stepBack(Value value) {
  if (auto select = value.getDefiningOp<arith::SelectOp>()) {
    if (isConstant(select.getFalseValue()))
      return select.getTrueValue();
    return isConstant(select.getTrueValue()) ? select.getFalseValue() : Value();
  }
  auto add = value.getDefiningOp<arith::AddFOp>();
  if (add && isPerExpert(add.getRhs()))
    return add.getLhs();
  return add && isPerExpert(add.getLhs()) ? add.getRhs() : Value();
}

/// Returns the expert ids that the router chose, before the token-expert pairs
/// over an expert's capacity were dropped.
Value chosenIds(Value ids) {
  auto throughReshapes = [](Value value) {
    while (auto reshape = value.getDefiningOp<nn::ReshapeOp>())
      value = reshape.getInput();
    return value;
  };
  auto limited = throughReshapes(ids).getDefiningOp<arith::SelectOp>();
  auto fits = limited ? limited.getCondition().getDefiningOp<arith::CmpIOp>()
                      : arith::CmpIOp();
  if (!fits || !fits.getLhs().getDefiningOp<nn::PositionInExpertOp>())
    return ids;
  return throughReshapes(limited.getTrueValue());
}

bool isProduct(Value value) {
  if (auto add = value.getDefiningOp<arith::AddFOp>())
    value = isPerExpert(add.getRhs()) ? add.getLhs() : add.getRhs();
  return value.getDefiningOp<nn::EinsumOp>() != nullptr;
}

LogicalResult follow(Router &router, Value compared) {
  for (Value value = compared; value; value = stepBack(value))
    if (auto *op = value.getDefiningOp();
        isa_and_present<nn::SoftmaxOp, nn::SigmoidOp>(op)) {
      router.scores = value;
      router.logits = op->getOperand(0);
      return success();
    }
  router.logits = compared;
  return success(isProduct(compared));
}

} // namespace

FailureOr<SmallVector<Router>> findRouters(func::FuncOp func) {
  SmallVector<Router> routers;
  llvm::DenseSet<Value> seen;
  for (auto dot : func.getOps<nn::GroupedDotOp>()) {
    Router router;
    router.ids = chosenIds(dot.getIds());
    if (!seen.insert(router.ids).second)
      continue;
    Value compared;
    if (auto top = router.ids.getDefiningOp<nn::TopKOp>()) {
      compared = top.getInput();
      router.slots = top.getK();
    } else if (auto best = router.ids.getDefiningOp<nn::ArgMaxOp>();
               best && int64_t(best.getDim()) ==
                           best.getInput().getType().getRank() - 1) {
      compared = best.getInput();
    }
    if (!compared || failed(follow(router, compared)))
      return dot.emitError("the scores by which its experts are chosen are "
                           "neither logits nor a softmax or sigmoid of "
                           "them; losses of routers need that");
    router.experts = typeOf(router.logits).getShape().back();
    routers.push_back(router);
  }
  return routers;
}

} // namespace cleave::autodiff
