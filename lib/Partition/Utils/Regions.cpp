//===- Regions.cpp - loops and branches -----------------------------------===//

#include "cleave/Partition/Utils/Regions.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::partition;

SmallVector<Carried> cleave::partition::carriedBy(Operation *op) {
  SmallVector<Carried> all;
  if (auto loop = dyn_cast<scf::ForOp>(op)) {
    Operation *yield = loop.getBody()->getTerminator();
    for (auto [index, result] : llvm::enumerate(loop.getResults()))
      all.push_back({loop.getInitArgs()[index],
                     loop.getRegionIterArgs()[index],
                     {yield->getOperand(index)},
                     result});
    return all;
  }
  auto branch = cast<scf::IfOp>(op);
  for (auto [index, result] : llvm::enumerate(branch.getResults()))
    all.push_back({{},
                   {},
                   {branch.thenYield().getOperand(index),
                    branch.elseYield().getOperand(index)},
                   result});
  return all;
}

bool cleave::partition::hasStaticTripCount(scf::ForOp loop) {
  return llvm::all_of(
      ValueRange{loop.getLowerBound(), loop.getUpperBound(), loop.getStep()},
      [](Value bound) { return matchPattern(bound, m_Constant()); });
}

LogicalResult cleave::partition::checkUnconstrained(Operation *op) {
  WalkResult found = op->walk([&](dist::ConstrainOp constrain) {
    if (constrain.getOperation() == op)
      return WalkResult::advance();
    constrain.emitOpError("stands in the region of '")
        << op->getName()
        << "', whose values take their shardings from the operands and the "
           "results; expected it on one of these";
    return WalkResult::interrupt();
  });
  return failure(found.wasInterrupted());
}

LogicalResult cleave::partition::checkRegions(Operation *op) {
  if (!isLoopOrBranch(op))
    return op->emitOpError(
        "has regions and cannot be partitioned; of operations with regions, "
        "scf.for and scf.if can be");
  if (auto loop = dyn_cast<scf::ForOp>(op); loop && !hasStaticTripCount(loop))
    return op->emitOpError(
        "has bounds that are no constants: ranks could disagree on the number "
        "of trips; it cannot be partitioned");
  for (Type type : op->getResultTypes())
    if (!isa<RankedTensorType>(type))
      return op->emitOpError("carries a value of type ")
             << type << ", expected tensors; it cannot be partitioned";
  return success();
}

bool cleave::partition::isScalarOp(Operation *op) {
  if (op->getNumRegions() != 0 || op->getNumResults() == 0)
    return false;
  auto isScalar = [](Type type) { return type.isIntOrIndexOrFloat(); };
  if (!llvm::all_of(op->getResultTypes(), isScalar))
    return false;
  if (auto extract = dyn_cast<tensor::ExtractOp>(op))
    return extract.getTensor().getType().getRank() == 0;
  return llvm::all_of(op->getOperandTypes(), isScalar);
}
