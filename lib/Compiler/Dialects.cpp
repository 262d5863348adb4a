// The dialects of a context.

#include "cleave/Compiler/Dialects.h"

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/Pipe/IR/Pipe.h"
#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Memory/LibraryCalls.h"

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

using namespace mlir;

namespace cleave::compiler {

void registerDialects(DialectRegistry &registry) {
  registry.insert<arith::ArithDialect, func::FuncDialect, math::MathDialect,
                  scf::SCFDialect, tensor::TensorDialect, dist::DistDialect,
                  nn::NNDialect, pipe::PipeDialect, rt::RTDialect>();
  registerInterfaceModels(registry);
  registerLibraryCalls(registry);
}

void registerAllDialects(DialectRegistry &registry) {
  registerDialects(registry);
  registry.insert<gpu::GPUDialect, LLVM::LLVMDialect, NVVM::NVVMDialect,
                  memref::MemRefDialect, vector::VectorDialect>();
}

void loadDialects(MLIRContext &context) {
  DialectRegistry registry;
  registerDialects(registry);
  context.appendDialectRegistry(registry);
  context.loadAllAvailableDialects();
  // Diagnostics do not print the operation, because error messages are
  // sufficient and the printed program would hide them.
  context.printOpOnDiagnostic(false);
}

} // namespace cleave::compiler
