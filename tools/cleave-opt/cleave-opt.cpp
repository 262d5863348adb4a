// cleave-opt: every dialect and every pass, for lit tests and for looking at
// one phase alone. Plugins of passes are loaded by --load-pass-plugin.

#include "cleave/Compiler/Dialects.h"
#include "cleave/Init/AllPasses.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  cleave::registerAllPasses();
  mlir::DialectRegistry registry;
  cleave::compiler::registerDialects(registry);
  // What kernels are lowered to.
  registry.insert<mlir::gpu::GPUDialect, mlir::LLVM::LLVMDialect,
                  mlir::NVVM::NVVMDialect, mlir::memref::MemRefDialect,
                  mlir::vector::VectorDialect>();
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "cleave optimizer driver\n", registry));
}
