// Finds residuals: values of the forward pass that the backward pass reads.

#include "Residuals.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/ShardingRule.h"

using namespace mlir;
using namespace cleave;

Value strategy::savedFrom(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || op->getNumOperands() != 1 || op->getNumResults() != 1)
    return {};
  if (auto save = dyn_cast<nn::SaveOp>(op))
    return save.getInput();
  if (!ShardingRule::of(op).movement)
    return {};
  Value source = savedFrom(op->getOperand(0));
  if (!source)
    return {};
  for (Operation *user : source.getUsers())
    if (user->getName() == op->getName() &&
        user->getAttrs() == op->getAttrs() &&
        user->getResultTypes() == op->getResultTypes())
      return user->getResult(0);
  return {};
}
