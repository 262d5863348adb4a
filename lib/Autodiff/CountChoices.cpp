// nn-count-choices: counts how many token-expert pairs each expert has.

#include "BuildFunctions.h"
#include "Choices.h"
#include "cleave/Autodiff/Passes.h"
#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Dialect/Pipe/IR/Pipe.h"
#include "cleave/Support/ValueUtils.h"

#include "llvm/ADT/StringMap.h"

namespace cleave {
#define GEN_PASS_DEF_COUNTCHOICESPASS
#include "cleave/Autodiff/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::autodiff;

namespace {

/// Counts the true elements of `hits` over all dimensions except the last
/// `kept` dimensions.
Value count(OpBuilder &b, Location loc, Value hits, int64_t kept) {
  RankedTensorType type = typeOf(hits);
  Value ones = arith::ExtUIOp::create(b, loc, type.clone(b.getI64Type()), hits);
  return b.createOrFold<nn::ReduceOp>(
      loc, nn::Combiner::Sum, ones,
      llvm::to_vector(llvm::seq<int64_t>(type.getRank() - kept)));
}

/// Returns the number of token-expert pairs of each expert, [experts]. `ids`
/// has the expert of each pair. Compares each pair's expert with each expert's
/// number, and sums the result. Both steps fuse into one kernel, so no tensor
/// [pairs, experts] is stored.
Value slotsOfExperts(OpBuilder &b, Value ids, int64_t experts) {
  Location loc = ids.getLoc();
  RankedTensorType type = typeOf(ids);
  SmallVector<int64_t> shape(type.getShape());
  shape.push_back(experts);
  int64_t last = shape.size() - 1;
  auto pairs = type.clone(shape);
  Value list = nn::IotaOp::create(b, loc, type.clone({experts}), uint64_t(0));
  Value mine = nn::BroadcastOp::create(
      b, loc, pairs, ids, llvm::to_vector(llvm::seq<int64_t>(last)));
  Value expert =
      nn::BroadcastOp::create(b, loc, pairs, list, ArrayRef<int64_t>{last});
  Value hits =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, mine, expert);
  return count(b, loc, hits, /*kept=*/1);
}

/// Returns the number of token-expert pairs that were not dropped. The id of a
/// dropped pair is negative.
Value slotsTaken(OpBuilder &b, Value ids) {
  Location loc = ids.getLoc();
  Value none = nn::createSplat(b, loc, typeOf(ids), 0);
  Value hits =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, ids, none);
  return count(b, loc, hits, /*kept=*/0);
}

struct CountChoicesPass : cleave::impl::CountChoicesPassBase<CountChoicesPass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto func = module.lookupSymbol<func::FuncOp>(nn::kLossTrainFunc);
    auto loss = module.lookupSymbol<func::FuncOp>(nn::kLossFunc);
    func::FuncOp from = func ? func : loss;
    if (!from || from.isExternal())
      return;
    SmallVector<Choice> choices = findChoices(from);
    llvm::StringMap<StringAttr> biases; // by router name
    if (updateBiases && failed(findBiases(from, choices, biases)))
      return signalPassFailure();
    if (choices.empty())
      return;
    if (!func)
      func = cloneAs(loss, nn::kLossTrainFunc);
    Operation *terminator = func.getBody().front().getTerminator();
    SmallVector<Value> results(terminator->getOperands());
    SmallVector<DictionaryAttr> attrs;
    for (unsigned result = 0; result < func.getNumResults(); ++result)
      attrs.push_back(func.getResultAttrDict(result));
    OpBuilder b(terminator);
    auto add = [&](const Choice &choice, nn::RouterCounts counts, Value value) {
      NamedAttrList list(portAttrs(
          &getContext(), choice.name + "." + nn::stringifyEnum(counts),
          nn::Role::Accumulator));
      list.set(nn::kRouterAttr,
               nn::RouterAttr::get(
                   &getContext(), b.getStringAttr(choice.name), counts,
                   choice.slotsPerToken, b.getStringAttr(choice.product),
                   choice.capacity, choice.capacity ? choice.capacityOf : 0,
                   biases.lookup(choice.name)));
      results.push_back(value);
      attrs.push_back(list.getDictionary(&getContext()));
    };
    for (const Choice &choice : findChoices(func)) {
      Operation *before = terminator->getPrevNode();
      add(choice, nn::RouterCounts::Chosen,
          slotsOfExperts(b, choice.chosen, choice.experts));
      if (choice.taken != choice.chosen)
        add(choice, nn::RouterCounts::Taken, slotsTaken(b, choice.taken));
      // In a program that will be cut into pipeline stages, the counts belong
      // to the stage in which the experts are chosen.
      Operation *def = choice.taken.getDefiningOp();
      if (Attribute stage = def ? def->getAttr(pipe::kStageAttr) : nullptr)
        while ((before = before->getNextNode()) != terminator)
          before->setAttr(pipe::kStageAttr, stage);
    }
    setResults(func, results, attrs);
  }

private:
  /// Finds the bias of every router and gives it the role of a buffer.
  LogicalResult findBiases(func::FuncOp func, ArrayRef<Choice> choices,
                           llvm::StringMap<StringAttr> &biases) {
    if (choices.empty())
      return func.emitError("@")
             << func.getName()
             << " has no experts that a router chooses, but "
                "parallel.expert.bias_update is not 0";
    SmallVector<std::string> without;
    llvm::StringMap<StringRef> routers; // by bias name
    for (const Choice &choice : choices) {
      BlockArgument bias = biasOf(func, choice);
      if (!bias) {
        without.push_back("'" + choice.name + "'");
        continue;
      }
      unsigned number = bias.getArgNumber();
      StringRef name = nameOf(func, number);
      if (!isOneOf(roleOf(func, number),
                   {nn::Role::Parameter, nn::Role::Buffer}))
        return func.emitError("router '")
               << choice.name << "' has the bias '" << name
               << "', which is frozen (train.trainable, train.frozen), but "
                  "parallel.expert.bias_update is not 0";
      auto [other, isNew] = routers.try_emplace(name, choice.name);
      if (!isNew)
        return func.emitError("routers '")
               << other->second << "' and '" << choice.name
               << "' share the bias '" << name
               << "' (equal tensors are stored once by exporters): "
                  "parallel.expert.bias_update needs one for each router";
      biases[choice.name] = StringAttr::get(&getContext(), name);
    }
    if (!without.empty()) {
      InFlightDiagnostic error = func.emitError("@")
                                 << func.getName()
                                 << " has no bias that enters "
                                    "nothing but the choice of ";
      error << (without.size() == 1 ? "router " : "routers ");
      llvm::interleaveComma(without, error);
      error << ", but parallel.expert.bias_update is not 0; expected experts "
               "chosen by the largest of scores + bias, with one trained "
               "number for each expert, and weighed by scores without it";
      return error;
    }
    for (auto each : getOperation().getOps<func::FuncOp>())
      for (unsigned arg = 0; arg < each.getNumArguments(); ++arg)
        if (roleOf(each, arg) == nn::Role::Parameter &&
            routers.contains(nameOf(each, arg)))
          nn::setRole(each, arg, nn::Role::Buffer);
    return success();
  }
};

} // namespace
