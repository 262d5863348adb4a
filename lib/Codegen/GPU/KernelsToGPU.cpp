// kernels-to-gpu: replaces the kernel functions of a module by GPU kernels.

#include "cleave/Codegen/GPU/GPU.h"
#include "cleave/Codegen/Passes.h"
#include "cleave/Fusion/Fusion.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace cleave {
#define GEN_PASS_DEF_KERNELSTOGPUPASS
#include "cleave/Codegen/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;

namespace {
struct KernelsToGPUPass : cleave::impl::KernelsToGPUPassBase<KernelsToGPUPass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto emitted = codegen::emitGpuKernels(module);
    if (failed(emitted))
      return signalPassFailure();
    std::string ptx;
    if (!arch.empty()) {
      OwningOpRef<ModuleOp> used = cast<ModuleOp>((*emitted)->clone());
      auto text = codegen::compileToPtx(*used, arch);
      if (failed(text))
        return signalPassFailure();
      ptx = *text;
    }
    if (expand && failed(codegen::expandGpuMath(**emitted)))
      return signalPassFailure();
    // The kernel's declaration remains, because calls refer to it.
    for (auto kernel : module.getOps<func::FuncOp>())
      if (kernel->hasAttr(kernels::kKernelAttr))
        kernel.eraseBody();
    for (auto kernels :
         llvm::make_early_inc_range((*emitted)->getOps<gpu::GPUModuleOp>())) {
      if (!ptx.empty())
        kernels->setAttr("nn.ptx", StringAttr::get(&getContext(), ptx));
      kernels->remove();
      module.push_back(kernels);
    }
  }
};
} // namespace
