// nn-mark-batch: propagates the batch dimension from inputs to outputs.

#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Dialect/NN/Transforms/BatchFlow.h"
#include "cleave/Dialect/NN/Transforms/Passes.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Support/ValueUtils.h"

namespace cleave {
#define GEN_PASS_DEF_MARKBATCHPASS
#include "cleave/Dialect/NN/Transforms/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;

namespace {

struct MarkBatchPass : cleave::impl::MarkBatchPassBase<MarkBatchPass> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp func = getOperation();
    if (func.isDeclaration() || !findSeeds(func))
      return;
    int64_t batch = 0;
    for (auto [argument, dim] : seeds)
      batch = typeOf(argument).getDimSize(dim);
    if (batch < 1)
      return;
    nn::BatchFlow flow(func, batch);
    for (auto [argument, dim] : seeds)
      if (typeOf(argument).getDimSize(dim) == batch)
        flow.seed(argument, dim);
    flow.run();
    bool found = false;
    for (BlockArgument argument : func.getArguments()) {
      if (!isInput(argument) || said(argument))
        continue;
      std::optional<int64_t> dim = flow.dimOf(argument);
      // The first dimension of an input may enumerate samples although no
      // operation connects it with the batch, for example because the function
      // only sums over it.
      if (!dim && !isDeclared && typeOf(argument).getRank() &&
          typeOf(argument).getDimSize(0) == batch && !flow.meetsBatch(argument))
        dim = 0;
      if (dim)
        seeds.push_back({argument, *dim}), found = true;
    }
    if (found) { // for what depends on them
      flow = nn::BatchFlow(func, batch);
      for (auto [argument, dim] : seeds)
        if (typeOf(argument).getDimSize(dim) == batch)
          flow.seed(argument, dim);
      flow.run();
    }
    Builder builder(&getContext());
    for (auto [argument, dim] : seeds)
      func.setArgAttr(argument.getArgNumber(), nn::kBatchDimAttr,
                      builder.getI64IntegerAttr(dim));
    markResults(func, flow);
  }

private:
  bool isInput(BlockArgument argument) {
    return isa<RankedTensorType>(argument.getType()) &&
           nn::isOneOf(nn::roleOf(argument),
                       {nn::Role::Tokens, nn::Role::Labels, nn::Role::Input});
  }

  IntegerAttr said(BlockArgument argument) {
    return getOperation().getArgAttrOfType<IntegerAttr>(argument.getArgNumber(),
                                                        nn::kBatchDimAttr);
  }

  /// Chooses the inputs whose batch dimension is known, from which it is
  /// propagated: those that declare one; if there are none, the tokens (or the
  /// first input), with dimension 0.
  bool findSeeds(func::FuncOp func) {
    seeds.clear();
    isDeclared = false;
    std::optional<BlockArgument> first, tokens;
    for (BlockArgument argument : func.getArguments()) {
      if (!isInput(argument) || typeOf(argument).getRank() == 0)
        continue;
      if (!first)
        first = argument;
      if (nn::roleOf(argument) == nn::Role::Tokens)
        tokens = argument;
      if (IntegerAttr dim = said(argument)) {
        isDeclared = true;
        if (dim.getInt() >= 0 && dim.getInt() < typeOf(argument).getRank())
          seeds.push_back({argument, dim.getInt()});
      }
    }
    if (!isDeclared && first)
      seeds.push_back({tokens ? *tokens : *first, 0});
    return !seeds.empty();
  }

  void markResults(func::FuncOp func, const nn::BatchFlow &flow) {
    Builder builder(&getContext());
    Operation *end = func.getBody().front().getTerminator();
    for (auto [index, value] : llvm::enumerate(end->getOperands())) {
      auto type = dyn_cast<RankedTensorType>(value.getType());
      if (!type)
        continue;
      auto known =
          func.getResultAttrOfType<IntegerAttr>(index, nn::kBatchDimAttr);
      std::optional<int64_t> dim;
      if (known)
        dim = known.getInt();
      else
        dim = flow.dimOrUnit(value);
      if (dim)
        func.setResultAttr(index, nn::kBatchDimAttr,
                           builder.getI64IntegerAttr(*dim));
      if (flow.isBatched(value) && (!dim || flow.isMixed(value)))
        func.setResultAttr(index, nn::kWholeCallAttr, builder.getUnitAttr());
    }
  }

  SmallVector<std::pair<BlockArgument, int64_t>> seeds;
  /// True if an input declares its batch dimension. Then every input with a
  /// batch dimension must declare it.
  bool isDeclared = false;
};

} // namespace
