//===- BlockVJP.cpp - reverse mode over one block -------------------------===//

#include "cleave/Interfaces/BlockVJP.h"

#include "cleave/Dialect/NN/IR/NN.h"

using namespace mlir;
using namespace cleave;

SmallVector<Operation *> BlockVJP::activateResults(Block &block) {
  SmallVector<Operation *> forward;
  for (Operation &op : block.without_terminator())
    if (llvm::any_of(op.getOperands(), [&](Value v) { return isActive(v); })) {
      for (Value result : op.getResults())
        if (isa<FloatType>(getElementTypeOrSelf(result)))
          activate(result);
      forward.push_back(&op);
    }
  return forward;
}

void BlockVJP::add(Value forward, Value cotangent) {
  Value &sum = cotangents[forward];
  sum =
      sum ? arith::AddFOp::create(build, location, sum, cotangent) : cotangent;
}

LogicalResult BlockVJP::visit(ArrayRef<Operation *> forward) {
  for (Operation *op : llvm::reverse(forward)) {
    if (llvm::none_of(op->getResults(),
                      [&](Value v) { return !!cotangentOf(v); }))
      continue;
    current = op;
    location = op->getLoc();
    auto differentiable = dyn_cast<DifferentiableInterface>(op);
    if (!differentiable)
      return op->emitOpError("has no derivative, but a parameter's gradient "
                             "depends on it");
    if (failed(differentiable.buildVJP(*this)))
      return failure();
  }
  return success();
}

Value BlockVJP::cotangent(unsigned result) {
  return cotangentOf(current->getResult(result));
}

Value BlockVJP::cotangentOrZero(unsigned result) {
  if (Value value = cotangent(result))
    return value;
  auto type = cast<RankedTensorType>(current->getResult(result).getType());
  return nn::createSplat(build, location, type, 0.0);
}

bool BlockVJP::wanted(unsigned operand) {
  return isActive(current->getOperand(operand));
}

void BlockVJP::set(unsigned operand, Value cotangent) {
  if (wanted(operand))
    add(current->getOperand(operand), cotangent);
}

Value BlockVJP::residual(Value forward) {
  if (Value kept = residuals.lookup(forward))
    return kept;
  auto read = [&]() -> Value {
    if (auto argument = dyn_cast<BlockArgument>(forward))
      return readArgument(argument);
    auto result = cast<OpResult>(forward);
    Operation *def = result.getOwner();
    if (def->hasTrait<OpTrait::ConstantLike>())
      return readConstant(forward);
    auto lowering = dyn_cast<LoweringInterface>(def);
    return lowering && lowering.getKernelClass() == KernelClass::View
               ? remake(result)
               : save(result);
  };
  Value kept = read(); // which may add other residuals
  return residuals[forward] = kept;
}

Value BlockVJP::remake(OpResult result) {
  Operation *def = result.getOwner();
  IRMapping mapping;
  for (Value operand : def->getOperands())
    mapping.map(operand, residual(operand));
  return build.clone(*def, mapping)->getResult(result.getResultNumber());
}

void BlockVJP::replaceForward(Operation *op, ValueRange values) {
  for (auto [from, to] : llvm::zip_equal(op->getResults(), values)) {
    if (isActive(from))
      activate(to);
    if (Value kept = residuals.lookup(from))
      residuals[to] = kept == from ? to : kept;
    if (Value cotangent = cotangents.lookup(from))
      cotangents[to] = cotangent;
    from.replaceAllUsesWith(to);
  }
  replaced.push_back(op);
}

void BlockVJP::eraseReplaced() {
  for (Operation *op : replaced)
    op->erase();
  replaced.clear();
}
