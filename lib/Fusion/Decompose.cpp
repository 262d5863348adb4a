// Decomposes operations into those from which kernels are generated.

#include "cleave/Fusion/Fusion.h"

#include "cleave/Interfaces/Interfaces.h"

using namespace mlir;
using namespace cleave;

void kernels::decomposeAll(
    Operation *root,
    llvm::function_ref<void(Operation *, ArrayRef<Operation *>)> rewritten) {
  SmallVector<Operation *> worklist;
  root->walk([&](LoweringInterface op) { worklist.push_back(op); });
  while (!worklist.empty()) {
    Operation *op = worklist.pop_back_val();
    Operation *before = op->getPrevNode();
    OpBuilder builder(op);
    auto results = cast<LoweringInterface>(op).decompose(builder);
    if (failed(results))
      continue;
    SmallVector<Operation *> created;
    Operation *at = before ? before->getNextNode() : &op->getBlock()->front();
    for (; at != op; at = at->getNextNode())
      created.push_back(at);
    if (rewritten)
      rewritten(op, created);
    op->replaceAllUsesWith(*results);
    op->erase();
    for (Operation *inner : created)
      if (isa<LoweringInterface>(inner))
        worklist.push_back(inner);
  }
}
