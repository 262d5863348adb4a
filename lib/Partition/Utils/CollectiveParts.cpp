//===- CollectiveParts.cpp - parts of a message ---------------------------===//

#include "cleave/Partition/Utils/CollectiveParts.h"

#include "cleave/Dialect/Dist/IR/Dist.h"

using namespace mlir;
using namespace cleave::dist;

void cleave::partition::dropUnreadParts(Operation *collective) {
  SmallVector<Value> inputs;
  SmallVector<Type> types;
  SmallVector<int64_t> dims;
  SmallVector<Value> kept;
  auto all = cast<CollectiveOpInterface>(collective);
  auto dimsAttr = collective->getAttrOfType<DenseI64ArrayAttr>("dims");
  for (auto [index, result] : llvm::enumerate(all->getResults()))
    if (!result.use_empty()) {
      inputs.push_back(all->getOperand(index));
      types.push_back(result.getType());
      dims.push_back(dimsAttr[index]);
      kept.push_back(result);
    }
  if (kept.size() < all->getNumResults() && !kept.empty()) {
    OperationState state(all->getLoc(), all->getName(), inputs, types,
                         all->getAttrs());
    state.attributes.set("dims",
                         DenseI64ArrayAttr::get(all->getContext(), dims));
    Operation *fewer = OpBuilder(all).create(state);
    for (auto [from, to] : llvm::zip_equal(kept, fewer->getResults()))
      from.replaceAllUsesWith(to);
  }
  if (kept.size() < all->getNumResults())
    all->erase();
}
