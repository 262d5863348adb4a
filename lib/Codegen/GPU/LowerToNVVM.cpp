// Lowers GPU kernels to the LLVM and NVVM dialects.

#include "DeviceLibrary.h"
#include "cleave/Codegen/GPU/GPU.h"
#include "cleave/Support/Passes.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/GPUToNVVM/GPUToNVVMPass.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/DialectConversion.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace cleave;

/// Does what convert-gpu-to-nvvm does, but allows intrinsics that this pass
/// forbids, such as square roots: the hardware computes them, correctly
/// rounded.
static LogicalResult convertThreads(gpu::GPUModuleOp module) {
  MLIRContext *context = module.getContext();
  LLVMTypeConverter converter(context);
  configureGpuToNVVMTypeConverter(converter);
  RewritePatternSet patterns(context);
  arith::populateArithToLLVMConversionPatterns(converter, patterns);
  cf::populateControlFlowToLLVMConversionPatterns(converter, patterns);
  populateFinalizeMemRefToLLVMConversionPatterns(converter, patterns);
  populateGpuToNVVMConversionPatterns(converter, patterns);
  ConversionTarget target(*context);
  target.addLegalDialect<LLVM::LLVMDialect, NVVM::NVVMDialect>();
  target.addLegalOp<gpu::GPUModuleOp>();
  target.markUnknownOpDynamicallyLegal([](Operation *) { return false; });
  return applyFullConversion(module, target, std::move(patterns));
}

LogicalResult cleave::codegen::lowerToNVVM(ModuleOp kernels) {
  if (failed(expandGpuMath(kernels)))
    return failure();
  callDeviceLibrary(kernels);
  MLIRContext *context = kernels.getContext();
  context->loadDialect<cf::ControlFlowDialect>();
  auto build = [&](OpPassManager &passes) {
    OpPassManager &inner = passes.nest<gpu::GPUModuleOp>();
    inner.addPass(arith::createArithExpandOpsPass());
    inner.addPass(createSCFToControlFlowPass());
    inner.addPass(createConvertMathToLLVMPass());
    inner.addPass(createConvertVectorToLLVMPass());
  };
  if (failed(runPasses(kernels, "kernels to NVVM", build, /*dumps=*/false)))
    return failure();
  for (auto module : kernels.getOps<gpu::GPUModuleOp>())
    if (failed(convertThreads(module)))
      return failure();
  return success();
}
