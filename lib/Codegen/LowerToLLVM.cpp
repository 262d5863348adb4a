// Lowers loops to the LLVM dialect.

#include "cleave/Codegen/Codegen.h"
#include "cleave/Codegen/EmulateBFloat16.h"
#include "cleave/Codegen/ExpandMath.h"
#include "cleave/Support/Passes.h"

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

using namespace mlir;
using namespace cleave;

LogicalResult cleave::codegen::lowerToLLVM(ModuleOp kernels) {
  widenBFloat16Math(kernels);
  if (failed(expandMath(kernels)) || failed(emulateBFloat16(kernels)))
    return failure();
  auto build = [&](OpPassManager &passes) {
    arith::ArithExpandOpsPassOptions expand;
    expand.includeBf16 = true; // by integer operations
    passes.addPass(arith::createArithExpandOpsPass(expand));
    passes.addPass(createSCFToControlFlowPass());
    // The conversion to library calls unrolls vectors, so it runs before the
    // lowering of vector operations.
    passes.addPass(createConvertMathToLLVMPass());
    passes.addPass(createConvertMathToLibmPass());
    passes.addPass(createConvertVectorToLLVMPass());
    passes.addPass(createArithToLLVMConversionPass());
    passes.addPass(createConvertControlFlowToLLVMPass());
    passes.addPass(createConvertFuncToLLVMPass());
    passes.addPass(createReconcileUnrealizedCastsPass());
  };
  if (failed(runPasses(kernels, "kernels to LLVM", build, /*dumps=*/false)))
    return failure();
  storeBFloat16AsIntegers(kernels);
  return success();
}
