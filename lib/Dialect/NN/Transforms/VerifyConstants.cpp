// nn-verify-constants.

#include "cleave/Dialect/NN/Transforms/Passes.h"

namespace cleave {
#define GEN_PASS_DEF_VERIFYCONSTANTSPASS
#include "cleave/Dialect/NN/Transforms/Passes.h.inc"
} // namespace cleave

using namespace mlir;

namespace {
struct VerifyConstantsPass
    : cleave::impl::VerifyConstantsPassBase<VerifyConstantsPass> {
  using Base::Base;

  void runOnOperation() override {
    WalkResult result = getOperation().walk([&](arith::ConstantOp op) {
      auto elements = dyn_cast<DenseElementsAttr>(op.getValue());
      if (!elements || elements.isSplat())
        return WalkResult::advance();
      unsigned bits = elements.getElementType().getIntOrFloatBitWidth();
      int64_t bytes = elements.getNumElements() * ((bits + 7) / 8);
      if (bytes <= maxBytes)
        return WalkResult::advance();
      op.emitError("constant ")
          << op.getType() << " has " << bytes << " bytes, expected at most "
          << int64_t(maxBytes)
          << "; tensors of this size belong in an argument";
      return WalkResult::interrupt();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
