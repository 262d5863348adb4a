// nn-update-router-biases: makes @update change the biases of routers so that
// the experts' loads become even.

#include "BuildFunctions.h"
#include "cleave/Autodiff/Passes.h"
#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Support/ValueUtils.h"

namespace cleave {
#define GEN_PASS_DEF_UPDATEROUTERBIASESPASS
#include "cleave/Autodiff/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::autodiff;

namespace {

struct UpdateRouterBiasesPass
    : cleave::impl::UpdateRouterBiasesPassBase<UpdateRouterBiasesPass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto grad = module.lookupSymbol<func::FuncOp>(nn::kLossGradFunc);
    auto update = module.lookupSymbol<func::FuncOp>(nn::kUpdateFunc);
    if (rate == 0 || !grad || !update)
      return;
    for (unsigned result = 0; result < grad.getNumResults(); ++result) {
      nn::RouterAttr router = nn::routerOf(grad.getResultAttrDict(result));
      StringAttr bias = router ? router.getBias() : nullptr;
      if (bias && router.getCounts() == nn::RouterCounts::Chosen &&
          failed(move(grad, update, result, bias)))
        return signalPassFailure();
    }
  }

private:
  /// Makes @update change a router's bias: adds the bias and the experts' loads
  /// (result `result` of @loss_grad: the token-expert pairs of each expert) as
  /// arguments, and the new bias as a result.
  LogicalResult move(func::FuncOp grad, func::FuncOp update, unsigned result,
                     StringAttr name) {
    unsigned from = 0;
    while (
        from < grad.getNumArguments() &&
        !(roleOf(grad, from) == nn::Role::Buffer && nameOf(grad, from) == name))
      ++from;
    if (from == grad.getNumArguments())
      return grad.emitError("counts a router's choices without its bias '")
             << name.getValue()
             << "': cut the router and its experts into one stage "
                "(parallel.pipeline.stages)";
    DictionaryAttr attrs = grad.getArgAttrDict(from);
    Location loc = NameLoc::get(name);
    unsigned at = update.getNumArguments();
    if (failed(update.insertArgument(at, grad.getArgumentTypes()[from], attrs,
                                     loc)) ||
        failed(update.insertArgument(at + 1, grad.getResultTypes()[result],
                                     grad.getResultAttrDict(result), loc)))
      return failure();
    Operation *terminator = update.getBody().front().getTerminator();
    OpBuilder b(terminator);
    Value old = update.getArgument(at);
    Value moved = arith::AddFOp::create(
        b, loc, old, step(b, loc, update.getArgument(at + 1), typeOf(old)));
    if (Value finite = finiteOf(b, loc, update, typeOf(old)))
      moved = arith::SelectOp::create(b, loc, finite, moved, old);
    SmallVector<Value> results(terminator->getOperands());
    SmallVector<DictionaryAttr> resultAttrs;
    for (unsigned i = 0; i < update.getNumResults(); ++i)
      resultAttrs.push_back(update.getResultAttrDict(i));
    results.push_back(moved);
    resultAttrs.push_back(attrs);
    setResults(update, results, resultAttrs);
    return success();
  }

  /// Returns the change of the bias: rate * sign(mean load - load). The load of
  /// an expert is its number of token-expert pairs. The sign is computed
  /// exactly, from integers: it is the sign of (number of all pairs) - (number
  /// of experts) * load.
  Value step(OpBuilder &b, Location loc, Value counts, RankedTensorType type) {
    RankedTensorType integers = typeOf(counts);
    Value slots = nn::BroadcastOp::create(
        b, loc, integers,
        b.createOrFold<nn::ReduceOp>(loc, nn::Combiner::Sum, counts,
                                     ArrayRef<int64_t>{0}),
        ArrayRef<int64_t>());
    Value scaled = arith::MulIOp::create(
        b, loc, counts,
        nn::createSplat(b, loc, integers, integers.getNumElements()));
    auto floats = integers.clone(type.getElementType());
    auto where = [&](arith::CmpIPredicate holds, double value, Value other) {
      return arith::SelectOp::create(
          b, loc, arith::CmpIOp::create(b, loc, holds, scaled, slots),
          nn::createSplat(b, loc, floats, value), other);
    };
    Value down = where(arith::CmpIPredicate::sgt, -rate,
                       nn::createSplat(b, loc, floats, 0.0));
    Value change = where(arith::CmpIPredicate::slt, rate, down);
    return b.createOrFold<nn::ReshapeOp>(loc, type, change);
  }

  /// Returns the flag of @update that says whether loss and gradients were
  /// finite; null if @update has no such flag.
  Value finiteOf(OpBuilder &b, Location loc, func::FuncOp update,
                 RankedTensorType type) {
    for (unsigned i = 0; i < update.getNumResults(); ++i) {
      if (resultRoleOf(update, i) != nn::Role::Metric ||
          nn::resultNameOf(update, i) != "finite")
        continue;
      Value flag = update.getBody().front().getTerminator()->getOperand(i);
      Value holds =
          arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGT, flag,
                                nn::createSplat(b, loc, typeOf(flag), 0.0));
      return nn::BroadcastOp::create(b, loc, type.clone(b.getI1Type()), holds,
                                     ArrayRef<int64_t>());
    }
    return {};
  }
};

} // namespace
