//===- cleave-opt.cpp - runs single passes on a file ----------------------===//
//
// A list of registrations: every dialect and every pass, for lit tests and for
// looking at one phase alone.
//
//===----------------------------------------------------------------------===//

#include "cleave/Actions/RegisterPasses.h"
#include "cleave/Autodiff/RegisterPasses.h"
#include "cleave/Check/RegisterPasses.h"
#include "cleave/Codegen/RegisterPasses.h"
#include "cleave/Conversion/ToRT/RegisterPasses.h"
#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/NN/Transforms/RegisterPasses.h"
#include "cleave/Dialect/Pipe/IR/Pipe.h"
#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/Compiler/Backend.h"
#include "cleave/Import/ONNX/Import.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Kernels/RegisterPasses.h"
#include "cleave/Memory/RegisterPasses.h"
#include "cleave/Partition/RegisterPasses.h"
#include "cleave/Schedule/RegisterPasses.h"
#include "cleave/Stage/RegisterPasses.h"
#include "cleave/Strategy/RegisterPasses.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"

int main(int argc, char **argv) {
  mlir::registerTransformsPasses();
  cleave::nn::registerNNPasses();
  cleave::registerImportPipeline();
  cleave::autodiff::registerAutodiffPasses();
  cleave::stage::registerStagePasses();
  cleave::strategy::registerStrategyPasses();
  cleave::check::registerCheckPasses();
  cleave::conversion::registerToRTPasses();
  cleave::memory::registerMemoryPasses();
  cleave::schedule::registerSchedulePasses();
  cleave::registerPartitionPasses();
  cleave::actions::registerActionsPasses();
  cleave::registerPartitionPipeline();
  cleave::kernels::registerKernelsPasses();
  cleave::codegen::registerCodegenPasses();
  cleave::registerBackendPhases();
  mlir::DialectRegistry registry;
  registry.insert<mlir::arith::ArithDialect, mlir::func::FuncDialect,
                  mlir::math::MathDialect, mlir::scf::SCFDialect,
                  mlir::tensor::TensorDialect, mlir::gpu::GPUDialect,
                  mlir::LLVM::LLVMDialect, mlir::NVVM::NVVMDialect,
                  mlir::memref::MemRefDialect, mlir::vector::VectorDialect,
                  cleave::dist::DistDialect, cleave::nn::NNDialect,
                  cleave::pipe::PipeDialect, cleave::rt::RTDialect>();
  cleave::registerInterfaceModels(registry);
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "cleave optimizer driver\n", registry));
}
