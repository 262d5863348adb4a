// Definitions of the interfaces and their default implementations.

#include "cleave/Interfaces/Interfaces.h"

using namespace mlir;

#include "cleave/Interfaces/Interfaces.cpp.inc"

cleave::PrecisionRule cleave::PrecisionRule::of(KernelClass kernelClass) {
  PrecisionRule rule;
  switch (kernelClass) {
  case KernelClass::View:
  case KernelClass::Identity:
    rule.kind = Kind::Moves;
    break;
  case KernelClass::Reduction:
    rule.wideResults = {0};
    break;
  case KernelClass::Elementwise:
  case KernelClass::Row:
  case KernelClass::Indexing:
  case KernelClass::Library:
  case KernelClass::Collective:
    break;
  }
  return rule;
}

int64_t cleave::bytesOf(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  unsigned bits = tensor.getElementTypeBitWidth();
  return tensor.getNumElements() * std::max(1u, bits / 8);
}

int64_t cleave::bytesOfOperandsAndResults(Operation *op) {
  int64_t bytes = 0;
  for (Type type : op->getOperandTypes())
    bytes += bytesOf(type);
  for (Type type : op->getResultTypes())
    bytes += bytesOf(type);
  return bytes;
}

cleave::ShardingRule cleave::ShardingRule::of(Operation *op) {
  if (auto known = dyn_cast<ShardingRuleInterface>(op))
    return known.getShardingRule();
  return replicated(op);
}

ArrayRef<unsigned> cleave::ShardingRule::groupOf(unsigned operand) const {
  for (const auto &group : linear)
    if (llvm::is_contained(group, operand))
      return group;
  return {};
}

cleave::ShardingRule cleave::ShardingRule::replicated(Operation *op) {
  ShardingRule rule;
  auto whole = [&](Type type) {
    TensorFactors dims;
    if (auto tensor = dyn_cast<RankedTensorType>(type))
      for (int64_t size : tensor.getShape())
        dims.push_back({rule.addFactor(size, FactorKind::NeedReplication)});
    return dims;
  };
  for (Type type : op->getOperandTypes())
    rule.operands.push_back(whole(type));
  for (Type type : op->getResultTypes())
    rule.results.push_back(whole(type));
  return rule;
}
