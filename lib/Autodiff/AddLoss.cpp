// nn-add-loss: computes the loss from the outputs of the model, as a sum over
// samples and the weight by which the sum must be divided.

#include "BuildFunctions.h"
#include "SplitLoss.h"
#include "cleave/Autodiff/Passes.h"
#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Dialect/NN/IR/Parts.h"
#include "cleave/Support/ValueUtils.h"

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

/// Sums over all dimensions.
Value sumAll(OpBuilder &b, Location loc, Value value) {
  int64_t rank = typeOf(value).getRank();
  return b.createOrFold<nn::ReduceOp>(
      loc, nn::Combiner::Sum, value, llvm::to_vector(llvm::seq<int64_t>(rank)));
}

struct AddLossPass : cleave::impl::AddLossPassBase<AddLossPass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto forward = module.lookupSymbol<func::FuncOp>(nn::kForwardFunc);
    if (!forward || forward.isExternal()) {
      module.emitError(
          "the module has no function @forward to derive a loss from");
      return signalPassFailure();
    }
    if (failed(freeze(forward)))
      return signalPassFailure();
    step = module.lookupSymbol<func::FuncOp>(nn::kForwardStepFunc);
    other = module.lookupSymbol<func::FuncOp>(nn::kForwardOtherFunc);
    if (step && !other)
      other = forward;
    if (step && failed(freeze(step)))
      return signalPassFailure();
    func::FuncOp func = cloneAs(forward, nn::kLossFunc);
    if (failed(addLoss(func))) {
      func.erase();
      return signalPassFailure();
    }
    freezeUnreached(func, forward);
    for (func::FuncOp read : {step, other})
      if (read && read != forward)
        read.erase();
  }

  /// Turns parameters that are not trained into constants of the program. The
  /// attribute `nn.frozen` says that such a constant is a parameter of the
  /// model.
  LogicalResult freeze(func::FuncOp forward) {
    // A pattern of train.trainable or train.frozen that matches no parameter is
    // refused: a misspelt name would silently change which parameters are
    // trained.
    if (failed(checkTied(forward, trainable, "train.trainable")) ||
        failed(checkTied(forward, frozen, "train.frozen")) ||
        failed(reportIdle(forward, trainable, "train.trainable", true)) ||
        failed(reportIdle(forward, frozen, "train.frozen", true)))
      return failure();
    for (unsigned arg = 0; arg < forward.getNumArguments(); ++arg) {
      if (roleOf(forward, arg) != nn::Role::Parameter)
        continue;
      DictionaryAttr attrs = forward.getArgAttrDict(arg);
      FailureOr<bool> on = matchesAny(forward, trainable, attrs);
      FailureOr<bool> off = matchesAny(forward, frozen, attrs);
      if (failed(on) || failed(off))
        return failure();
      bool isBuffer = forward.getArgAttr(arg, nn::kFrozenAttr) != nullptr;
      if (!isBuffer && (trainable.empty() || *on) && !*off)
        continue;
      nn::setRole(forward, arg, nn::Role::Constant);
      forward.setArgAttr(arg, nn::kFrozenAttr, UnitAttr::get(&getContext()));
    }
    return success();
  }

  /// Freezes the parameters that the loss does not depend on through
  /// floating-point values. They have no gradient, but weight decay would still
  /// change them.
  void freezeUnreached(func::FuncOp func, func::FuncOp forward) {
    SmallVector<Value> values = {
        func.getBody().front().getTerminator()->getOperand(0)};
    llvm::DenseSet<Value> reached(values.begin(), values.end());
    while (!values.empty()) {
      Operation *op = values.pop_back_val().getDefiningOp();
      if (!op)
        continue;
      op->walk([&](Operation *inner) { // also the operations in its regions
        for (Value operand : inner->getOperands())
          if (isa<FloatType>(getElementTypeOrSelf(operand)) &&
              reached.insert(operand).second)
            values.push_back(operand);
      });
    }
    SmallVector<StringRef> names;
    for (BlockArgument argument : func.getArguments()) {
      unsigned arg = argument.getArgNumber();
      if (roleOf(func, arg) != nn::Role::Parameter ||
          reached.contains(argument))
        continue;
      llvm::append_range(names, nn::fileNamesOf(func.getArgAttrDict(arg)));
      for (func::FuncOp each : {func, forward}) {
        nn::setRole(each, arg, nn::Role::Constant);
        each.setArgAttr(arg, nn::kFrozenAttr, UnitAttr::get(&getContext()));
      }
    }
    if (names.empty())
      return;
    constexpr size_t kShown = 3;
    std::string list;
    for (StringRef name : ArrayRef(names).take_front(kShown))
      list += (list.empty() ? "'" : ", '") + name.str() + "'";
    emitWarning(func.getLoc())
        << "the loss does not depend on " << names.size()
        << (names.size() == 1 ? " parameter" : " parameters") << " (" << list
        << (names.size() > kShown ? ", ..." : "")
        << "), which stay as in the file; train.loss and train.logits say "
           "which outputs it reads";
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
    if (!StringRef(loss).starts_with("output:") &&
        failed(checkSamples(func, *chosen)))
      return failure();
    if (loss == "cross_entropy")
      sums = crossEntropy(func, b, output);
    else if (loss == "mse")
      sums = meanSquares(func, b, output);
    else
      sums = insideModel(func, b, output, *chosen);
    if (failed(sums))
      return failure();
    setResults(func, {sums->first, sums->second},
               {portAttrs(&getContext(), "loss", nn::Role::Loss),
                portAttrs(&getContext(), "weight", nn::Role::Weight)});
    return success();
  }

  /// Checks that microbatches do not change the output that is compared with
  /// the labels. The values of an output that mixes the samples of a batch
  /// depend on which samples are in a microbatch.
  LogicalResult checkSamples(func::FuncOp func, unsigned output) {
    func::FuncOp all = step ? step : func;
    if (microbatches == 1 || sharedSlots ||
        !all.getResultAttr(output, nn::kWholeCallAttr))
      return success();
    Value value = all.getBody().front().getTerminator()->getOperand(output);
    return emitError(value.getLoc())
           << "output '" << nn::resultNameOf(all, output)
           << "', which the loss reads, mixes the samples of a batch, so that "
              "train.microbatches = "
           << int64_t(microbatches)
           << " would change it; set train.microbatches = 1";
  }

  /// Returns the index of the function result from which the loss is computed.
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
      names.push_back(nn::resultNameOf(func, result));
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
      error << "has no output '" << wanted << "' ("
            << (StringRef(loss).starts_with("output:") ? "train.loss"
                                                       : "train.logits")
            << "); its outputs are ";
    llvm::interleaveComma(names, error);
    return error;
  }

  /// Adds an argument for the labels. Its batch dimension is that of the
  /// output.
  Value addLabels(func::FuncOp func, RankedTensorType type) {
    unsigned index = func.getNumArguments();
    // The model may already have an input named "labels".
    for (BlockArgument argument : func.getArguments()) {
      if (nn::nameOf(func.getArgAttrDict(argument.getArgNumber())) != "labels")
        continue;
      if (nn::roleOf(argument) == nn::Role::Labels &&
          argument.getType() == type)
        return argument;
      auto own = typeOf(argument);
      func.emitError("the loss needs labels of type ")
          << type.getElementType() << " and shape [" << type.getShape()
          << "], but the model has an input 'labels' of type "
          << own.getElementType() << " and shape [" << own.getShape()
          << "]; rename this input, or if the model computes its loss from it, "
             "set train.loss = \"output:NAME\"";
      return {};
    }
    NamedAttrList attrs(portAttrs(&getContext(), "labels", nn::Role::Labels));
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

  DictionaryAttr outputAttrs; // attributes of the output that the loss reads

  FailureOr<std::pair<Value, Value>> crossEntropy(func::FuncOp func,
                                                  OpBuilder &b, Value output) {
    auto type = typeOf(output);
    if (type.getRank() < 2 || !isa<FloatType>(type.getElementType()))
      return func.emitError(
                 "cross_entropy needs logits [..., classes] of floats, "
                 "but the output is of type ")
             << type.getElementType() << " and shape [" << type.getShape()
             << "]"
             << (isa<FloatType>(type.getElementType())
                     ? "; where it is to be near the labels, train.loss = "
                       "\"mse\""
                     : "");
    Location loc = output.getLoc();
    ArrayRef<int64_t> rows = type.getShape().drop_back();
    auto labelType = RankedTensorType::get(rows, b.getI64Type());
    auto rowType = RankedTensorType::get(rows, type.getElementType());
    Value labels = addLabels(func, labelType);
    if (!labels)
      return failure();
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
    auto type = typeOf(output);
    Location loc = output.getLoc();
    if (!isa<FloatType>(type.getElementType()))
      return func.emitError("mse needs an output of floats, found ") << type;
    Value labels = addLabels(func, type);
    if (!labels)
      return failure();
    Value error = arith::SubFOp::create(b, loc, output, labels);
    Value sum = sumAll(b, loc, arith::MulFOp::create(b, loc, error, error));
    Value weight = nn::createSplat(
        b, loc, RankedTensorType::get({}, type.getElementType()),
        type.getNumElements());
    return std::pair(sum, weight);
  }

  /// Handles train.loss = "output:NAME": the model itself computes the loss, as
  /// the scalar `output`. Returns this loss as a sum and a weight. Both add up
  /// over microbatches, and their quotient is the loss over all samples of the
  /// step.
  FailureOr<std::pair<Value, Value>>
  insideModel(func::FuncOp func, OpBuilder &b, Value output, unsigned index) {
    auto type = typeOf(output);
    if (type.getNumElements() != 1 || !isa<FloatType>(type.getElementType()))
      return func.emitError("the loss output must be one float, found ")
             << type;
    Value whole = output;
    func::FuncOp all = microbatches > 1 ? step : func::FuncOp();
    if (all)
      whole = all.getBody().front().getTerminator()->getOperand(index);
    LossSplitter splitter(func, all, other, microbatches);
    Mean mean = meanOf(whole, output, splitter);
    if (microbatches > 1) {
      FailureOr<LossSplitter::Part> part = failure();
      if (mean.isMean)
        part = splitter.split(mean.whole, mean.sum);
      if (failed(part) || part->kind != LossSplitter::Kind::Sum) {
        // The sum in the numerator of the loss does not add up over
        // microbatches. So the complete loss, including its division, is split
        // instead; each microbatch then divides by the divisor of the whole
        // step.
        part = splitter.split(whole, output);
        if (failed(part))
          return refuse(splitter);
        mean = Mean();
        if (part->kind == LossSplitter::Kind::Sum)
          mean.factor = microbatches;
      }
      mean.sum = part->value;
    }
    Location loc = output.getLoc();
    auto scalar = RankedTensorType::get({}, type.getElementType());
    Value sum = mean.sum;
    if (mean.factor == -1)
      sum = arith::NegFOp::create(b, loc, sum);
    else if (mean.factor != 1)
      sum = arith::MulFOp::create(
          b, loc, sum, nn::createSplat(b, loc, typeOf(sum), mean.factor));
    sum = b.createOrFold<nn::ReshapeOp>(loc, scalar, sum);
    Value count = mean.count
                      ? b.createOrFold<nn::ReshapeOp>(loc, scalar, mean.count)
                      : nn::createSplat(b, loc, scalar, mean.weight);
    return std::pair(sum, count);
  }

  /// Emits an error of one line: the location, why the loss cannot be split
  /// over microbatches, and what the user can do.
  LogicalResult refuse(const LossSplitter &splitter) {
    return emitError(splitter.place())
           << "the loss '" << StringRef(loss).drop_front(strlen("output:"))
           << "' is not known to add up over train.microbatches = "
           << int64_t(microbatches) << ": " << splitter.reason()
           << "; set train.microbatches = 1, or give the loss as sums over "
              "samples divided by values that depend on inputs alone";
  }

  /// A loss, written as factor * sum / weight, or as factor * sum / count if
  /// `count` is set.
  struct Mean {
    Value whole, sum; // `sum` for all samples of a step, and for a microbatch
    double factor = 1, weight = 1;
    Value count;
    bool isMean = false;
  };

  static std::optional<double> numberOf(Value v) {
    DenseElementsAttr dense;
    if (v && matchPattern(v, m_Constant(&dense)) && dense.isSplat() &&
        isa<FloatType>(dense.getElementType()))
      return dense.getSplatValue<APFloat>().convertToDouble();
    return std::nullopt;
  }

  /// Returns the operands of a product or quotient. If one operand of a product
  /// is constant, it comes second.
  static std::pair<Value, Value> sidesOf(Operation *op) {
    Value left = op->getOperand(0), right = op->getOperand(1);
    if (isa<arith::MulFOp>(op) && numberOf(left))
      std::swap(left, right);
    return {left, right};
  }

  /// Writes a loss as a Mean. `whole` is the loss in the function @forward of a
  /// whole step, `part` that in @forward of a microbatch. Beginning at the last
  /// operation of the loss, removes negations, constant factors, and at most
  /// one division by a count. Negations change the sign of the factor, so the
  /// weight is positive.
  Mean meanOf(Value whole, Value part, LossSplitter &splitter) {
    Mean mean;
    bool hasStep = splitter.hasStep();
    for (;;) {
      mean.whole = whole;
      mean.sum = part;
      Operation *op = whole.getDefiningOp(), *twin = part.getDefiningOp();
      if (!op || !twin || !areTwins(op, twin))
        break;
      if (isa<nn::ReshapeOp, arith::NegFOp>(op)) {
        if (isa<arith::NegFOp>(op))
          mean.factor = -mean.factor;
        whole = op->getOperand(0);
        part = twin->getOperand(0);
        continue;
      }
      bool divides = isa<arith::DivFOp>(op);
      if (!divides && !isa<arith::MulFOp>(op))
        break;
      auto [left, right] = sidesOf(op);
      auto [ownLeft, ownRight] = sidesOf(twin);
      std::optional<double> all = numberOf(right), own = numberOf(ownRight);
      if (all && own) {
        double ofAll = divides ? 1 / *all : *all;
        double ofOwn = divides ? 1 / *own : *own;
        bool isCount = hasStep && *all != *own;
        // If a constant divisor has different values in the functions for a
        // step and for a microbatch, it is assumed to count samples. It must
        // then be proportional to the number of samples.
        if (!std::isfinite(ofAll) || ofAll == 0 ||
            (isCount && (mean.isMean ||
                         std::abs(ofAll * microbatches / ofOwn - 1) > 1e-6)))
          break;
        if (isCount) {
          mean.weight = 1 / std::abs(ofOwn);
          mean.factor *= ofOwn < 0 ? -1 : 1;
          mean.isMean = true;
        } else {
          mean.factor *= ofAll;
        }
      } else if (divides && !mean.isMean &&
                 takeCount(right, ownRight, mean, splitter)) {
        mean.isMean = true;
      } else {
        break;
      }
      whole = left;
      part = ownLeft;
    }
    // Without a function for the whole step, it is unknown whether a constant
    // divisor counts samples. It is assumed that it does.
    if (!hasStep && !mean.isMean && std::isfinite(1 / mean.factor)) {
      mean.weight = 1 / std::abs(mean.factor);
      mean.factor = mean.factor < 0 ? -1 : 1;
      mean.isMean = true;
    }
    return mean;
  }

  /// If the divisor of the loss is a count over the inputs, such as the number
  /// of labels, makes it the `count` of the mean and returns true. The divisors
  /// of all microbatches must add up to the divisor of the step.
  bool takeCount(Value whole, Value part, Mean &mean, LossSplitter &splitter) {
    double sign = 1;
    while (isa_and_present<arith::NegFOp>(whole.getDefiningOp()) &&
           isa_and_present<arith::NegFOp>(part.getDefiningOp())) {
      whole = whole.getDefiningOp()->getOperand(0);
      part = part.getDefiningOp()->getOperand(0);
      sign = -sign;
    }
    bool isCount = microbatches > 1 ? splitter.addsUp(whole, part)
                                    : !nn::dependsOnParameter(whole);
    if (!isCount)
      return false;
    mean.count = part;
    mean.factor *= sign;
    return true;
  }

  // The functions @forward for all samples of a step, and for a different
  // number of samples; null if not given.
  func::FuncOp step, other;
};

} // namespace
