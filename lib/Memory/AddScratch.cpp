// rt-add-scratch: library calls get the scratch memory they ask for.

#include "cleave/Memory/LibraryCalls.h"
#include "cleave/Memory/Passes.h"
#include "cleave/workspace.h"

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
    SmallVector<Operation *> calls;
    getOperation().walk([&](Operation *op) {
      if (isa<rt::GemmOp, rt::GroupedGemmOp, rt::AttentionOp,
              rt::AttentionGradOp>(op))
        calls.push_back(op);
    });
    for (Operation *op : calls)
      if (failed(addScratch(op)))
        return signalPassFailure();
  }

  int64_t workspace(Operation *op, std::string &error) {
    if (device == program::Device::Cuda) {
      if (auto gemm = dyn_cast<rt::GemmOp>(op))
        return cuda::gemmWorkspace(describe(gemm), error);
      if (auto grouped = dyn_cast<rt::GroupedGemmOp>(op))
        return cuda::groupedWorkspace(describe(grouped), error);
      if (auto forward = dyn_cast<rt::AttentionOp>(op))
        return cuda::attentionWorkspace(describe(forward), error);
      return cuda::attentionWorkspace(describe(cast<rt::AttentionGradOp>(op)),
                                      error);
    }
    if (auto gemm = dyn_cast<rt::GemmOp>(op))
      return gemmWorkspace(describe(gemm), threads, error);
    if (auto grouped = dyn_cast<rt::GroupedGemmOp>(op))
      return groupedWorkspace(describe(grouped), threads, error);
    if (auto forward = dyn_cast<rt::AttentionOp>(op))
      return attentionWorkspace(describe(forward), threads, error);
    return attentionWorkspace(describe(cast<rt::AttentionGradOp>(op)), threads,
                              error);
  }

  LogicalResult addScratch(Operation *op) {
    if (cast<rt::CommandOpInterface>(op).getScratchResult())
      return success();
    std::string error;
    int64_t bytes = workspace(op, error);
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
