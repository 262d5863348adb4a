#include "cleave/Codegen/EmulateBFloat16.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace cleave;

LogicalResult cleave::codegen::emulateBFloat16(ModuleOp kernels) {
  PassManager manager(kernels.getContext());
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
  arith::ArithEmulateUnsupportedFloatsOptions options;
  options.sourceTypeStrs = {"bf16"};
  options.targetTypeStr = "f32";
  manager.addPass(arith::createArithEmulateUnsupportedFloats(options));
  if (failed(manager.run(kernels)))
    return failure();
  // The pass allows a rounding and its inverse to cancel; every one counts.
  auto none = arith::FastMathFlagsAttr::get(kernels.getContext(),
                                            arith::FastMathFlags::none);
  kernels.walk([&](Operation *op) {
    if (auto widen = dyn_cast<arith::ExtFOp>(op))
      widen.setFastmathAttr(none);
    if (auto round = dyn_cast<arith::TruncFOp>(op))
      round.setFastmathAttr(none);
  });
  return success();
}
