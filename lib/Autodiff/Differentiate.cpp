// nn-differentiate: reverse-mode differentiation of @loss. The pass decides in
// which order operations are differentiated, which values are active (depend on
// a parameter) and which are saved for the backward pass. Every operation
// defines its own derivative.

#include "BuildFunctions.h"
#include "cleave/Autodiff/Passes.h"
#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Dialect/Pipe/IR/Pipe.h"
#include "cleave/Interfaces/BlockVJP.h"
#include "cleave/Support/ValueUtils.h"

namespace cleave {
#define GEN_PASS_DEF_DIFFERENTIATEPASS
#include "cleave/Autodiff/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::autodiff;

namespace {

/// One backward pass over one function body.
class Backward : public BlockVJP {
public:
  Backward(Block &body) : BlockVJP(OpBuilder(body.getTerminator())) {}

protected:
  Value save(OpResult forward) override {
    OpBuilder b(forward.getContext());
    b.setInsertionPointAfter(forward.getOwner());
    return nn::SaveOp::create(b, forward.getLoc(), forward);
  }
};

struct DifferentiatePass
    : cleave::impl::DifferentiatePassBase<DifferentiatePass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto loss = module.lookupSymbol<func::FuncOp>(nn::kLossTrainFunc);
    bool hasOwn = !!loss;
    if (!loss)
      loss = module.lookupSymbol<func::FuncOp>(nn::kLossFunc);
    isStage = pipe::stageOf(module).has_value();
    if (!loss || loss.isExternal() || (!isStage && loss.getNumResults() < 2)) {
      module.emitError(
          "the module has no function @loss that returns a sum and a weight");
      return signalPassFailure();
    }
    func::FuncOp func = cloneAs(loss, nn::kLossGradFunc);
    if (hasOwn)
      loss.erase();
    if (failed(differentiate(func))) {
      func.erase();
      signalPassFailure();
    }
  }

  LogicalResult differentiate(func::FuncOp func) {
    Block &body = func.getBody().front();
    Backward backward(body);
    SmallVector<unsigned> parameters;
    for (unsigned arg = 0; arg < func.getNumArguments(); ++arg)
      if (roleOf(func, arg) == nn::Role::Parameter) {
        parameters.push_back(arg);
        backward.activate(func.getArgument(arg));
      }
    if (parameters.empty() && !isStage)
      return func.emitError("@")
             << func.getName()
             << " has no parameter to train: it has none, or "
                "train.trainable and train.frozen leave none";

    if (failed(checkCrossing(func)))
      return failure();
    for (BlockArgument argument : incoming(func))
      backward.activate(argument);

    // Finds the operations that depend on a parameter through floating-point
    // values; their derivatives are computed.
    SmallVector<Operation *> forward = backward.activateResults(body);
    if (failed(start(func, backward)) || failed(backward.visit(forward)))
      return failure();
    backward.eraseReplaced();
    return finish(func, backward, parameters);
  }

  /// Returns the arguments that are activations of the previous pipeline stage
  /// and need a cotangent.
  static SmallVector<BlockArgument> incoming(func::FuncOp func) {
    SmallVector<BlockArgument> found;
    for (BlockArgument argument : func.getArguments())
      if (func.getArgAttr(argument.getArgNumber(), pipe::kDifferentiableAttr))
        found.push_back(argument);
    return found;
  }

  /// Cotangents are named after their activations.
  static LogicalResult checkCrossing(func::FuncOp func) {
    auto isUnnamed = [](DictionaryAttr attrs) {
      return attrs && attrs.contains(pipe::kDifferentiableAttr) &&
             !attrs.getAs<StringAttr>(nn::kNameAttr);
    };
    for (unsigned arg = 0; arg < func.getNumArguments(); ++arg)
      if (isUnnamed(func.getArgAttrDict(arg)))
        return func.emitError("argument ")
               << arg << " is pipe.differentiable and has no nn.name";
    for (unsigned result = 0; result < func.getNumResults(); ++result)
      if (isUnnamed(func.getResultAttrDict(result)))
        return func.emitError("result ")
               << result << " is pipe.differentiable and has no nn.name";
    return success();
  }

  /// "cut.0.1.grad" for the activation "cut.0.1".
  DictionaryAttr cotangentAttrs(DictionaryAttr activation) {
    NamedAttrList attrs(activation);
    attrs.erase(pipe::kDifferentiableAttr);
    nn::setName(attrs, &getContext(), nn::nameOf(activation) + ".grad");
    nn::setRole(attrs, &getContext(), nn::Role::Cotangent);
    return attrs.getDictionary(&getContext());
  }

  /// Sets the cotangents with which the backward pass begins: that of the loss
  /// and, in a pipeline stage, those of the activations that the stage sends.
  /// The latter become arguments.
  LogicalResult start(func::FuncOp func, Backward &backward) {
    Operation *terminator = func.getBody().front().getTerminator();
    for (unsigned result = 0; result < func.getNumResults(); ++result) {
      Value value = terminator->getOperand(result);
      if (isStage ? resultRoleOf(func, result) == nn::Role::Loss
                  : result == 0) {
        auto scalar = typeOf(value);
        if (scalar.getRank() != 0)
          return func.emitError("the loss sum must be a scalar, found ")
                 << scalar;
        if (backward.isActive(value))
          backward.add(value, seed(func, backward, value));
      } else if (func.getResultAttr(result, pipe::kDifferentiableAttr)) {
        unsigned index = func.getNumArguments();
        if (failed(func.insertArgument(
                index, value.getType(),
                cotangentAttrs(func.getResultAttrDict(result)),
                value.getLoc())))
          return failure();
        backward.add(value, func.getArgument(index));
      }
    }
    return success();
  }

  /// Returns the cotangent of the loss: 1, or the factor that turns the loss
  /// from a sum into a mean.
  Value seed(func::FuncOp func, Backward &backward, Value loss) {
    OpBuilder &b = backward.builder();
    Location loc = loss.getLoc();
    auto splat = [&](double value) {
      return nn::createSplat(b, loc, typeOf(loss), value);
    };
    if (!apart)
      return splat(1.0);
    Operation *terminator = func.getBody().front().getTerminator();
    Value weight;
    for (unsigned result = 0; result < func.getNumResults(); ++result)
      if (resultRoleOf(func, result) == nn::Role::Weight)
        weight = backward.residual(terminator->getOperand(result));
    Value counts = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGT,
                                         weight, splat(0.0));
    Value inverse = arith::DivFOp::create(b, loc, splat(1.0), weight);
    return arith::SelectOp::create(b, loc, counts, inverse, splat(0.0));
  }

  /// Appends the cotangents of received activations and the gradients to the
  /// function's results. With `accumulate`, also adds arguments to which
  /// gradients are added.
  LogicalResult finish(func::FuncOp func, Backward &backward,
                       ArrayRef<unsigned> parameters) {
    OpBuilder &b = backward.builder();
    auto results =
        llvm::to_vector(func.getBody().front().getTerminator()->getOperands());
    SmallVector<DictionaryAttr> attrs;
    for (unsigned result = 0; result < func.getNumResults(); ++result)
      attrs.push_back(func.getResultAttrDict(result));
    // With `accumulate`: adds an argument with the name and role of a result,
    // and adds its value to the result.
    auto addAccumulator = [&](Value &value, DictionaryAttr boundary) {
      unsigned index = func.getNumArguments();
      if (failed(func.insertArgument(index, value.getType(), boundary,
                                     value.getLoc())))
        return failure();
      Value before = func.getArgument(index);
      if (isa<FloatType>(getElementTypeOrSelf(value)))
        value = arith::AddFOp::create(b, value.getLoc(), before, value);
      else
        value = arith::AddIOp::create(b, value.getLoc(), before, value);
      return success();
    };
    if (accumulate)
      for (auto [index, value] : llvm::enumerate(results))
        if (resultRoleOf(func, index) != nn::Role::Activation &&
            failed(addAccumulator(value, attrs[index])))
          return failure();
    auto orZero = [&](Value cotangent, Value forward) -> Value {
      if (cotangent)
        return cotangent;
      return nn::createSplat(b, func.getLoc(), typeOf(forward), 0.0);
    };
    for (BlockArgument argument : incoming(func)) {
      results.push_back(orZero(backward.cotangentOf(argument), argument));
      attrs.push_back(
          cotangentAttrs(func.getArgAttrDict(argument.getArgNumber())));
    }
    for (unsigned arg : parameters) {
      Value parameter = func.getArgument(arg);
      Value gradient = orZero(backward.cotangentOf(parameter), parameter);
      DictionaryAttr boundary =
          portAttrs(&getContext(), nameOf(func, arg), nn::Role::Gradient);
      if (accumulate && !apart && failed(addAccumulator(gradient, boundary)))
        return failure();
      results.push_back(gradient);
      attrs.push_back(boundary);
    }
    setResults(func, results, attrs);
    return success();
  }

  bool isStage = false; // whether the module is a pipeline stage
};

} // namespace
