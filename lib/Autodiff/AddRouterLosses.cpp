// nn-add-router-losses: a load-balancing loss and a z-loss for the routers of
// mixtures of experts.

#include "BuildFunctions.h"
#include "Routers.h"
#include "cleave/Autodiff/Passes.h"
#include "cleave/Support/ValueUtils.h"

namespace cleave {
#define GEN_PASS_DEF_ADDROUTERLOSSESPASS
#include "cleave/Autodiff/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::autodiff;

namespace {

SmallVector<int64_t> dimsFrom(int64_t first, int64_t end) {
  return llvm::to_vector(llvm::seq<int64_t>(first, end));
}

/// Builds the losses of one router at a time. A sum over samples weights each
/// sample by the number of its labels that count in the loss. So dividing the
/// sum by the number of such labels in the step gives the mean over samples.
class LossBuilder {
public:
  LossBuilder(OpBuilder &b, Value counted, bool perSample)
      : b(b), counted(counted), perSample(perSample) {}

  Value balance(const Router &router);
  Value squares(const Router &router);

private:
  /// Sums a value over tokens. If `perSample` is set, the result is a sum per
  /// sample, [samples, rest...], otherwise a sum over all tokens, [rest...].
  Value overTokens(Value value, int64_t tokenDims) {
    return b.createOrFold<nn::ReduceOp>(loc, nn::Combiner::Sum, value,
                                        dimsFrom(perSample ? 1 : 0, tokenDims));
  }
  Value times(Value value, double factor) {
    return arith::MulFOp::create(
        b, loc, value, nn::createSplat(b, loc, typeOf(value), factor));
  }
  Value product(Value lhs, Value rhs) {
    return arith::MulFOp::create(b, loc, lhs, rhs);
  }
  Value sum(Value value, ArrayRef<int64_t> dims) {
    return b.createOrFold<nn::ReduceOp>(loc, nn::Combiner::Sum, value, dims);
  }
  /// Returns the number of labels that count in the loss: per sample if
  /// `perSample` is set, otherwise in total.
  Value weights() {
    return sum(counted, dimsFrom(perSample ? 1 : 0, typeOf(counted).getRank()));
  }
  int64_t countOf(const Router &router) const {
    return llvm::product_of(router.tokens().drop_front(perSample ? 1 : 0));
  }
  /// Returns the sum over samples of weights() * value. `value` has one element
  /// per sample, or one in total.
  Value weighted(Value value) {
    Value all = product(value, weights());
    return perSample ? sum(all, {0}) : all;
  }
  Value shares(const Router &router);
  Value loads(const Router &router);

  OpBuilder &b;
  Location loc = b.getUnknownLoc();
  Value counted; // [samples, ...]: 1 where a label counts
  bool perSample;
};

/// Returns the routing probabilities, [tokens..., experts]; they sum to one
/// over experts.
Value LossBuilder::shares(const Router &router) {
  auto type = typeOf(router.logits);
  int64_t last = type.getRank() - 1;
  if (!router.scores)
    return nn::SoftmaxOp::create(b, loc, type, router.logits);
  if (router.scores.getDefiningOp<nn::SoftmaxOp>())
    return router.scores;
  Value total = nn::BroadcastOp::create(
      b, loc, type, sum(router.scores, {last}), dimsFrom(0, last));
  return arith::DivFOp::create(b, loc, router.scores, total);
}

/// Returns the load of each expert, the number of token-expert pairs with this
/// expert: [samples, experts] or [experts].
Value LossBuilder::loads(const Router &router) {
  int64_t tokenDims = router.tokens().size();
  SmallVector<int64_t> shape(typeOf(router.ids).getShape());
  shape.push_back(router.experts);
  int64_t last = shape.size() - 1;
  auto type = RankedTensorType::get(shape, b.getI64Type());
  Value ids =
      nn::BroadcastOp::create(b, loc, type, router.ids, dimsFrom(0, last));
  Value list = nn::IotaOp::create(
      b, loc, RankedTensorType::get({router.experts}, b.getI64Type()), 0);
  Value experts =
      nn::BroadcastOp::create(b, loc, type, list, ArrayRef<int64_t>{last});
  Value hits = arith::UIToFPOp::create(
      b, loc, type.clone(typeOf(router.logits).getElementType()),
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, ids, experts));
  return overTokens(hits, tokenDims + router.hasSlots());
}

/// Returns the load-balancing loss, multiplied by weights(). With k chosen
/// experts per token, the loss is experts / (k * tokens^2) * sum over experts e
/// of (load of e) * (sum over tokens of the probability of e). It is 1 if all
/// loads are equal.
Value LossBuilder::balance(const Router &router) {
  loc = router.logits.getLoc();
  Value load = loads(router),
        share = overTokens(shares(router), router.tokens().size());
  double tokens = countOf(router);
  Value even = times(sum(product(load, share), {perSample ? 1 : 0}),
                     router.experts / (router.slots * tokens * tokens));
  return weighted(even);
}

/// Returns the z-loss, multiplied by weights(). It is the mean over tokens of
/// logsumexp(logits)^2.
Value LossBuilder::squares(const Router &router) {
  loc = router.logits.getLoc();
  auto type = typeOf(router.logits);
  int64_t last = type.getRank() - 1;
  SmallVector<int64_t> rows(router.tokens()), box(type.getShape());
  auto rowType = RankedTensorType::get(rows, type.getElementType());
  // nn.cross_entropy computes logsumexp: logsumexp(logits) =
  // cross-entropy(logits, label) + logit of the label. This holds for every
  // label; label 0 is used.
  box[last] = 1;
  Value first = nn::SliceOp::create(b, loc, router.logits,
                                    SmallVector<int64_t>(last + 1, 0), box,
                                    SmallVector<int64_t>(last + 1, 1));
  first = nn::ReshapeOp::create(b, loc, rowType, first);
  Value zeros =
      nn::createSplat(b, loc, RankedTensorType::get(rows, b.getI64Type()), 0);
  auto ce = nn::CrossEntropyOp::create(b, loc, rowType, rowType, router.logits,
                                       zeros, /*ignoreIndex=*/-1);
  Value lse = arith::AddFOp::create(b, loc, ce.getLoss(), first);
  return weighted(
      times(overTokens(product(lse, lse), last), 1.0 / countOf(router)));
}

struct AddRouterLossesPass
    : cleave::impl::AddRouterLossesPassBase<AddRouterLossesPass> {
  using Base::Base;

  void runOnOperation() override {
    if (balance == 0 && squares == 0)
      return;
    ModuleOp module = getOperation();
    auto func = module.lookupSymbol<func::FuncOp>(nn::kLossTrainFunc);
    auto loss = module.lookupSymbol<func::FuncOp>(nn::kLossFunc);
    if (!func && (!loss || loss.isExternal())) {
      module.emitError("the module has no function @loss to add to");
      return signalPassFailure();
    }
    if (!func)
      func = cloneAs(loss, nn::kLossTrainFunc);
    if (failed(addTo(func)))
      signalPassFailure();
  }

  LogicalResult addTo(func::FuncOp func) {
    FailureOr<SmallVector<Router>> routers = findRouters(func);
    if (failed(routers))
      return failure();
    if (routers->empty())
      return func.emitError("@")
             << func.getName()
             << " has no experts that a router chooses, but "
                "parallel.expert."
             << (balance ? "aux_loss" : "z_loss") << " is not 0";
    Operation *terminator = func.getBody().front().getTerminator();
    OpBuilder b(terminator);
    FailureOr<Value> counted = countedLabels(func, b);
    if (failed(counted))
      return failure();
    bool perSample = scope == "sequence";
    LossBuilder builder(b, *counted, perSample);
    unsigned at = 0;
    while (at < func.getNumResults() &&
           resultRoleOf(func, at) != nn::Role::Loss)
      ++at;
    Value total = terminator->getOperand(at);
    auto add = [&](Value term, double factor) {
      Value scaled = arith::MulFOp::create(
          b, term.getLoc(), term,
          nn::createSplat(b, term.getLoc(), typeOf(term), factor));
      total = arith::AddFOp::create(b, term.getLoc(), total, scaled);
    };
    for (const Router &router : *routers) {
      if (router.tokens() != typeOf(*counted).getShape())
        return emitError(router.logits.getLoc(), "routes tokens [")
               << router.tokens() << "], but labels are ["
               << typeOf(*counted).getShape()
               << "]: losses of routers weigh a sample by its labels";
      if (perSample && router.tokens().size() < 2)
        return emitError(router.logits.getLoc(),
                         "routes one token for each sample: set "
                         "parallel.expert.aux_scope = \"microbatch\"");
      if (balance)
        add(builder.balance(router), balance);
      if (squares)
        add(builder.squares(router), squares);
    }
    terminator->setOperand(at, total);
    return success();
  }

  /// Returns a mask over labels: 1 for a label that counts, 0 for an ignored
  /// one.
  FailureOr<Value> countedLabels(func::FuncOp func, OpBuilder &b) {
    Location loc = func.getLoc();
    for (BlockArgument argument : func.getArguments()) {
      auto type = typeOf(argument);
      if (roleOf(func, argument.getArgNumber()) != nn::Role::Labels ||
          !type.getElementType().isInteger(64))
        continue;
      Value ignored = nn::createSplat(b, loc, type, ignoreIndex);
      Value counted = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne,
                                            argument, ignored);
      return Value(
          arith::UIToFPOp::create(b, loc, type.clone(b.getF32Type()), counted));
    }
    return func.emitError("@")
           << func.getName()
           << " has no labels of classes: parallel.expert.aux_loss "
              "and z_loss need train.loss = \"cross_entropy\"";
  }
};

} // namespace
