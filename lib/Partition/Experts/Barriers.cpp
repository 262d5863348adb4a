//===- Barriers.cpp - what recomputation waits for ------------------------===//

#include "Barriers.h"

#include "cleave/Dialect/NN/IR/NN.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace cleave;

/// Returns the operations whose results the function needs. Values that only
/// nn.rematerialize waits for, as its second operand, do not count.
static llvm::SetVector<Operation *> findRead(func::FuncOp func) {
  llvm::SetVector<Operation *> read;
  func.walk([&](Operation *op) {
    if (!wouldOpBeTriviallyDead(op))
      read.insert(op);
  });
  for (size_t i = 0; i < read.size(); ++i) {
    OperandRange operands = read[i]->getOperands();
    if (isa<nn::RematerializeOp>(read[i]))
      operands = operands.take_front(); // the value, without the barrier
    for (Value operand : operands)
      if (Operation *def = operand.getDefiningOp())
        read.insert(def);
  }
  return read;
}

/// Searches backward from `value` for results of operations in `read`, and
/// returns the latest in program order; null if there is none.
static Value lastRead(Value value, const llvm::SetVector<Operation *> &read) {
  Value last;
  llvm::SetVector<Value> from;
  from.insert(value);
  for (size_t i = 0; i < from.size(); ++i) {
    Operation *def = from[i].getDefiningOp();
    if (def && !read.contains(def)) {
      from.insert(def->operand_begin(), def->operand_end());
      continue;
    }
    Operation *before = last ? last.getDefiningOp() : nullptr;
    bool isLater = def && (!before || (before->getBlock() == def->getBlock() &&
                                       before->isBeforeInBlock(def)));
    if (!last || isLater)
      last = from[i];
  }
  return last;
}

void cleave::partition::relaxBarriers(func::FuncOp func) {
  llvm::SetVector<Operation *> read = findRead(func);
  func.walk([&](nn::RematerializeOp barrier) {
    if (Value last = lastRead(barrier.getCotangent(), read))
      barrier.getCotangentMutable().assign(last);
  });
}
