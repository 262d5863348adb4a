// nn-add-loss: from outputs to a loss sum and its weight.

#include "Boundary.h"
#include "cleave/Autodiff/Passes.h"
#include "cleave/Dialect/NN/IR/Batch.h"

#include "mlir/IR/Matchers.h"

#include <cmath>

namespace cleave {
#define GEN_PASS_DEF_ADDLOSSPASS
#include "cleave/Autodiff/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::autodiff;

namespace {

/// Sum over all dimensions.
Value sumAll(OpBuilder &b, Location loc, Value value) {
  int64_t rank = cast<RankedTensorType>(value.getType()).getRank();
  return b.createOrFold<nn::ReduceOp>(
      loc, nn::Combiner::Sum, value, llvm::to_vector(llvm::seq<int64_t>(rank)));
}

struct AddLossPass : cleave::impl::AddLossPassBase<AddLossPass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto forward = module.lookupSymbol<func::FuncOp>(nn::kForwardFunc);
    if (!forward || forward.isExternal()) {
      module.emitError("has no function @forward to derive a loss from");
      return signalPassFailure();
    }
    if (failed(freeze(forward)))
      return signalPassFailure();
    func::FuncOp func = cloneAs(forward, nn::kLossFunc);
    if (failed(addLoss(func))) {
      func.erase();
      signalPassFailure();
    }
  }

  /// Turns parameters that are not trained into constants of the program;
  /// `nn.frozen` says that they are parameters of the model.
  LogicalResult freeze(func::FuncOp forward) {
    // A misspelt name would train what must stay as it is, or too little.
    if (failed(checkTied(forward, trainable, "train.trainable")) ||
        failed(checkTied(forward, frozen, "train.frozen")) ||
        failed(reportIdle(forward, trainable, "train.trainable", true)) ||
        failed(reportIdle(forward, frozen, "train.frozen", true)))
      return failure();
    for (unsigned arg = 0; arg < forward.getNumArguments(); ++arg) {
      if (roleOf(forward, arg) != "parameter")
        continue;
      DictionaryAttr attrs = forward.getArgAttrDict(arg);
      FailureOr<bool> on = matchesAny(forward, trainable, attrs);
      FailureOr<bool> off = matchesAny(forward, frozen, attrs);
      if (failed(on) || failed(off))
        return failure();
      bool isBuffer = forward.getArgAttr(arg, nn::kFrozenAttr) != nullptr;
      if (!isBuffer && (trainable.empty() || *on) && !*off)
        continue;
      forward.setArgAttr(arg, nn::kRoleAttr,
                         StringAttr::get(&getContext(), "constant"));
      forward.setArgAttr(arg, nn::kFrozenAttr, UnitAttr::get(&getContext()));
    }
    return success();
  }

  LogicalResult addLoss(func::FuncOp func) {
    FailureOr<unsigned> chosen = chooseOutput(func);
    if (failed(chosen))
      return failure();
    outputAttrs = func.getResultAttrDict(*chosen);
    Operation *terminator = func.getBody().front().getTerminator();
    Value output = terminator->getOperand(*chosen);
    OpBuilder b(terminator);
    FailureOr<std::pair<Value, Value>> sums;
    if (loss == "cross_entropy")
      sums = crossEntropy(func, b, output);
    else if (loss == "mse")
      sums = meanSquares(func, b, output);
    else
      sums = splitMean(func, b, output);
    if (failed(sums))
      return failure();
    setResults(func, {sums->first, sums->second},
               {boundaryAttrs(&getContext(), "loss", "loss"),
                boundaryAttrs(&getContext(), "weight", "weight")});
    return success();
  }

  /// Index of the result that the loss reads.
  FailureOr<unsigned> chooseOutput(func::FuncOp func) {
    std::string wanted = logits;
    StringRef kind(loss);
    if (kind.consume_front("output:"))
      wanted = kind.str();
    else if (kind != "cross_entropy" && kind != "mse")
      return func.emitError("loss '")
             << loss
             << "' is unknown; expected cross_entropy, mse or output:NAME";
    SmallVector<StringRef> names;
    for (unsigned result = 0; result < func.getNumResults(); ++result) {
      auto name = func.getResultAttrOfType<StringAttr>(result, nn::kNameAttr);
      names.push_back(name ? name.getValue() : StringRef());
      if (!wanted.empty() && names.back() == wanted)
        return result;
    }
    if (wanted.empty() && names.size() == 1)
      return 0u;
    InFlightDiagnostic error = func.emitError();
    if (wanted.empty())
      error
          << "the loss could read several outputs; set train.logits to one of ";
    else
      error << "has no output '" << wanted << "'; its outputs are ";
    llvm::interleaveComma(names, error);
    return error;
  }

  /// Labels have their samples where the output that they are for has them.
  Value addLabels(func::FuncOp func, RankedTensorType type) {
    unsigned index = func.getNumArguments();
    NamedAttrList attrs(boundaryAttrs(&getContext(), "labels", "labels"));
    Builder builder(&getContext());
    if (auto dim = nn::batchDimOf(outputAttrs, type.getRank()))
      attrs.set(nn::kBatchDimAttr, builder.getI64IntegerAttr(*dim));
    else if (outputAttrs && outputAttrs.get(nn::kWholeCallAttr))
      attrs.set(nn::kBatchDimAttr, builder.getI64IntegerAttr(-1));
    if (failed(func.insertArgument(
            index, type, attrs.getDictionary(&getContext()), func.getLoc())))
      return {};
    return func.getArgument(index);
  }

  DictionaryAttr outputAttrs; // of the output that the loss reads

  FailureOr<std::pair<Value, Value>> crossEntropy(func::FuncOp func,
                                                  OpBuilder &b, Value output) {
    auto type = cast<RankedTensorType>(output.getType());
    if (type.getRank() < 2 || !isa<FloatType>(type.getElementType()))
      return func.emitError(
                 "cross_entropy needs logits [..., classes] of floats, "
                 "but the output is ")
             << type;
    Location loc = output.getLoc();
    ArrayRef<int64_t> rows = type.getShape().drop_back();
    auto labelType = RankedTensorType::get(rows, b.getI64Type());
    auto rowType = RankedTensorType::get(rows, type.getElementType());
    Value labels = addLabels(func, labelType);
    auto ce = nn::CrossEntropyOp::create(b, loc, rowType, rowType, output,
                                         labels, ignoreIndex);
    Value ignored = nn::createSplat(b, loc, labelType, ignoreIndex);
    Value counted = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne,
                                          labels, ignored);
    Value ones = arith::UIToFPOp::create(b, loc, rowType, counted);
    Value sum = sumAll(b, loc, ce.getLoss()), weight = sumAll(b, loc, ones);
    return std::pair(sum, weight);
  }

  FailureOr<std::pair<Value, Value>> meanSquares(func::FuncOp func,
                                                 OpBuilder &b, Value output) {
    auto type = cast<RankedTensorType>(output.getType());
    Location loc = output.getLoc();
    if (!isa<FloatType>(type.getElementType()))
      return func.emitError("mse needs an output of floats, found ") << type;
    Value labels = addLabels(func, type);
    Value error = arith::SubFOp::create(b, loc, output, labels);
    Value sum = sumAll(b, loc, arith::MulFOp::create(b, loc, error, error));
    Value weight = nn::createSplat(
        b, loc, RankedTensorType::get({}, type.getElementType()),
        type.getNumElements());
    return std::pair(sum, weight);
  }

  /// sum / n, or sum * (1/n), is the mean of n values, where n is a number or
  /// counted from the inputs; anything else is a sum of weight 1.
  FailureOr<std::pair<Value, Value>> splitMean(func::FuncOp func, OpBuilder &b,
                                               Value output) {
    auto type = cast<RankedTensorType>(output.getType());
    if (type.getNumElements() != 1 || !isa<FloatType>(type.getElementType()))
      return func.emitError("the loss output must be one float, found ")
             << type;
    Location loc = output.getLoc();
    auto scalar = RankedTensorType::get({}, type.getElementType());
    auto constant = [](Value v) -> std::optional<double> {
      DenseElementsAttr dense;
      if (matchPattern(v, m_Constant(&dense)) && dense.isSplat())
        return dense.getSplatValue<APFloat>().convertToDouble();
      return std::nullopt;
    };
    // A weight is positive: signs go to the sum.
    bool negative = false;
    auto peel = [&](Value v) {
      while (auto negated = v.getDefiningOp<arith::NegFOp>()) {
        v = negated.getOperand();
        negative = !negative;
      }
      return v;
    };
    Value sum = peel(output), count;
    std::optional<double> weight;
    if (auto div = sum.getDefiningOp<arith::DivFOp>()) {
      weight = constant(div.getRhs());
      if (!weight && !nn::dependsOnParameter(div.getRhs()))
        count = peel(div.getRhs());
      if (weight || count)
        sum = div.getLhs();
    } else if (auto mul = sum.getDefiningOp<arith::MulFOp>()) {
      if (auto factor = constant(mul.getRhs())) {
        weight = 1 / *factor;
        sum = mul.getLhs();
      }
    }
    if (weight && (!std::isfinite(*weight) || *weight == 0))
      weight.reset();
    if (weight && *weight < 0) {
      weight = -*weight;
      negative = !negative;
    }
    if (!weight && !count) {
      func.emitRemark("the loss '")
          << StringRef(loss).drop_front(strlen("output:"))
          << "' ends in no mean of counted values: with several microbatches, "
             "each weighs the same";
      sum = output;
    } else if (negative) {
      sum = arith::NegFOp::create(b, loc, sum);
    }
    sum = b.createOrFold<nn::ReshapeOp>(loc, scalar, sum);
    count = count ? b.createOrFold<nn::ReshapeOp>(loc, scalar, count)
                  : nn::createSplat(b, loc, scalar, weight.value_or(1));
    return std::pair(sum, count);
  }
};

} // namespace
