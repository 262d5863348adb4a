// rt-add-scratch: gives library calls the scratch memory that they need.

#include "cleave/Memory/LibraryCalls.h"
#include "cleave/Memory/Passes.h"
#include "cleave/workspace.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "llvm/ADT/TypeSwitch.h"

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
      std::string error;
      if (workspace(op, error))
        calls.push_back(op);
    });
    for (Operation *op : calls)
      if (failed(addScratch(op)))
        return signalPassFailure();
  }

  /// Bytes, or -1 on an error; nothing if the operation is not a library call.
  std::optional<int64_t> workspace(Operation *op, std::string &error) {
    bool isCuda = device == program::Device::Cuda;
    return TypeSwitch<Operation *, std::optional<int64_t>>(op)
        .Case([&](rt::GemmOp op) {
          return isCuda ? cuda::gemmWorkspace(describe(op), error)
                        : gemmWorkspace(describe(op), threads, error);
        })
        .Case([&](rt::GroupedGemmOp op) {
          return isCuda ? cuda::groupedWorkspace(describe(op), error)
                        : groupedWorkspace(describe(op), threads, error);
        })
        .Case<rt::AttentionOp, rt::AttentionGradOp>([&](auto op) {
          return isCuda ? cuda::attentionWorkspace(describe(op), error)
                        : attentionWorkspace(describe(op), threads, error);
        })
        .Case([&](rt::ConvOp op) -> int64_t {
          if (isCuda)
            return cuda::convolutionWorkspace(describe(op), error);
          error = "only CUDA devices have it";
          return -1;
        })
        .Default([](Operation *) { return std::nullopt; });
  }

  LogicalResult addScratch(Operation *op) {
    if (cast<rt::CommandOpInterface>(op).getScratchResult())
      return success();
    std::string error;
    int64_t bytes = *workspace(op, error);
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
