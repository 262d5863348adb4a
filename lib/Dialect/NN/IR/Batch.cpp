// Analyzes values by the roles of the arguments that they depend on.

#include "cleave/Dialect/NN/IR/Batch.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;

bool cleave::nn::dependsOnParameter(Value value) {
  SetVector<Value> sources;
  sources.insert(value);
  for (size_t i = 0; i < sources.size(); ++i) {
    if (Operation *op = sources[i].getDefiningOp()) {
      sources.insert(op->operand_begin(), op->operand_end());
      continue;
    }
    if (roleOf(cast<BlockArgument>(sources[i])) == Role::Parameter)
      return true;
  }
  return false;
}
