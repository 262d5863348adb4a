// Plans and emits all kernel functions of a module.

#include "Emitter.h"
#include "cleave/Codegen/Codegen.h"
#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Fusion/Fusion.h"

#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::codegen;

FailureOr<OwningOpRef<ModuleOp>>
cleave::codegen::emitKernels(ModuleOp module, const CodegenOptions &given) {
  CodegenOptions options = resolveOptions(given);
  MLIRContext *context = module.getContext();
  context->loadDialect<LLVM::LLVMDialect, scf::SCFDialect,
                       vector::VectorDialect, func::FuncDialect,
                       arith::ArithDialect, math::MathDialect>();

  // Planning rewrites kernels, so it works on copies of them. The copied module
  // also needs the meshes that the kernels refer to.
  OwningOpRef<ModuleOp> copy = ModuleOp::create(module.getLoc());
  OwningOpRef<ModuleOp> emitted = ModuleOp::create(module.getLoc());
  for (auto mesh : module.getOps<dist::MeshOp>())
    copy->push_back(mesh->clone());
  for (auto kernel : module.getOps<func::FuncOp>()) {
    if (!kernel->hasAttr(kernels::kKernelAttr))
      continue;
    auto clone = cast<func::FuncOp>(kernel->clone());
    copy->push_back(clone);
    kernels::decomposeAll(clone);
    std::string error;
    auto plan = kernels::KernelPlan::create(clone, error);
    if (!plan)
      return kernel.emitError("no kernel can be generated: ") << error;
    Emitter emitter(*plan, *emitted, kernel.getLoc(), kernel.getName(),
                    options.vectorBits);
    if (failed(emitter.run()))
      return failure();
  }
  return emitted;
}
