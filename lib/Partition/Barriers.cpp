//===- Barriers.cpp - what recomputation waits for ------------------------===//

#include "Barriers.h"

#include "cleave/Dialect/NN/IR/NN.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace cleave;

/// What is read but for the sake of barriers.
static llvm::SetVector<Operation *> findRead(func::FuncOp func) {
  llvm::SetVector<Operation *> read;
  func.walk([&](Operation *op) {
    if (!wouldOpBeTriviallyDead(op))
      read.insert(op);
  });
  for (size_t i = 0; i < read.size(); ++i) {
    OperandRange operands = read[i]->getOperands();
    if (isa<nn::RematerializeOp>(read[i]))
      operands = operands.take_front(); // what, not when
    for (Value operand : operands)
      if (Operation *def = operand.getDefiningOp())
        read.insert(def);
  }
  return read;
}

/// The operand that is known last; null where there is none.
static Value lastOperand(Operation *op) {
  Value last;
  for (Value operand : op->getOperands()) {
    Operation *def = operand.getDefiningOp(), *before = last ? last.getDefiningOp() : nullptr;
    bool isLater =
        def && def->getBlock() == op->getBlock() &&
        (!before || before->getBlock() != op->getBlock() || before->isBeforeInBlock(def));
    if (!last || isLater)
      last = operand;
  }
  return last;
}

void cleave::partition::relaxBarriers(func::FuncOp func) {
  llvm::SetVector<Operation *> read = findRead(func);
  func.walk([&](nn::RematerializeOp barrier) {
    Value value = barrier.getCotangent();
    for (Operation *def = value.getDefiningOp(); def && !read.contains(def);
         def = value.getDefiningOp()) {
      Value before = lastOperand(def);
      if (!before)
        return;
      value = before;
    }
    barrier.getCotangentMutable().assign(value);
  });
}
