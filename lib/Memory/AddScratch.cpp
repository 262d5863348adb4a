// rt-add-scratch: adds to each library call the scratch memory that it needs.

#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/Memory/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave {
#define GEN_PASS_DEF_ADDSCRATCHPASS
#include "cleave/Memory/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;

namespace {
struct AddScratchPass : cleave::impl::AddScratchPassBase<AddScratchPass> {
  using Base::Base;

  void runOnOperation() override {
    SmallVector<rt::LibraryCallOpInterface> calls;
    getOperation().walk(
        [&](rt::LibraryCallOpInterface call) { calls.push_back(call); });
    for (rt::LibraryCallOpInterface call : calls)
      if (failed(addScratch(call)))
        return signalPassFailure();
  }

  LogicalResult addScratch(rt::LibraryCallOpInterface call) {
    Operation *op = call;
    if (cast<rt::CommandOpInterface>(op).getScratchResult())
      return success();
    std::string error;
    int64_t bytes = call.getWorkspace(device, threads, error);
    if (bytes < 0)
      return op->emitOpError("is not supported by the runtime's library: ")
             << error;
    if (bytes == 0)
      return success();
    OpBuilder b(op);
    OperationState state(op->getLoc(), op->getName());
    state.addOperands(op->getOperands());
    state.addTypes(op->getResultTypes());
    state.addTypes(RankedTensorType::get({bytes}, b.getI8Type()));
    state.addAttributes(llvm::to_vector(op->getDiscardableAttrs()));
    state.propertiesAttr = op->getPropertiesAsAttribute();
    Operation *wide = b.create(state);
    op->replaceAllUsesWith(wide->getResults().drop_back());
    op->erase();
    return success();
  }
};
} // namespace
