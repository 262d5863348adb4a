// From loops to the LLVM dialect.

#include "ExpandMath.h"
#include "cleave/Codegen/Codegen.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVMPass.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MathToLibm/MathToLibm.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace cleave;

/// Arithmetic on bf16 in f32, rounded after each operation: not every processor
/// knows bf16, and there is no library to call.
static LogicalResult emulateBFloat16(ModuleOp kernels) {
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

LogicalResult cleave::codegen::lowerToLLVM(ModuleOp kernels) {
  if (failed(expandMath(kernels)) || failed(emulateBFloat16(kernels)))
    return failure();
  PassManager manager(kernels.getContext());
  arith::ArithExpandOpsPassOptions expand;
  expand.includeBf16 = true; // by integer operations
  manager.addPass(arith::createArithExpandOpsPass(expand));
  manager.addPass(createSCFToControlFlowPass());
  // Library calls take vectors apart, so they come before vectors go.
  manager.addPass(createConvertMathToLLVMPass());
  manager.addPass(createConvertMathToLibmPass());
  manager.addPass(createConvertVectorToLLVMPass());
  manager.addPass(createArithToLLVMConversionPass());
  manager.addPass(createConvertControlFlowToLLVMPass());
  manager.addPass(createConvertFuncToLLVMPass());
  manager.addPass(createReconcileUnrealizedCastsPass());
  return manager.run(kernels);
}
