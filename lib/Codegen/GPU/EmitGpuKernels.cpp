// Plans and emits all kernel functions of a module for a GPU.

#include "GpuEmitter.h"

#include "cleave/Codegen/EmulateBFloat16.h"
#include "cleave/Codegen/ExpandMath.h"
#include "cleave/Codegen/GPU/GPU.h"
#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Fusion/Fusion.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::codegen;

/// Returns a description of the limit of GPUs that a plan exceeds, such as its
/// number of rows; "" if it exceeds none.
static std::string limitOf(const kernels::KernelPlan &plan) {
  auto tooMany = [](int64_t count) { return count > INT32_MAX / 2; };
  if (plan.row && tooMany(plan.row->size))
    return std::to_string(plan.row->size) + " rows";
  for (const kernels::Columns &columns : plan.columnSpaces)
    if (tooMany(columns.count))
      return std::to_string(columns.count) + " elements of a row";
  if (plan.shape == kernels::KernelPlan::Shape::Scatter &&
      tooMany(plan.scatter.rows))
    return std::to_string(plan.scatter.rows) + " rows of a table";
  // Kernel parameters are limited to 4 KiB.
  size_t pointers = plan.arguments.size() + plan.outputs.size() + 1;
  if (pointers > 512)
    return std::to_string(pointers) + " operands and results";
  return "";
}

FailureOr<OwningOpRef<ModuleOp>>
cleave::codegen::emitGpuKernels(ModuleOp module) {
  MLIRContext *context = module.getContext();
  context
      ->loadDialect<LLVM::LLVMDialect, NVVM::NVVMDialect, gpu::GPUDialect,
                    scf::SCFDialect, vector::VectorDialect, arith::ArithDialect,
                    math::MathDialect, memref::MemRefDialect>();

  // Planning rewrites kernels, so it works on copies of them. The copied module
  // also needs the meshes that the kernels refer to.
  OwningOpRef<ModuleOp> copy = ModuleOp::create(module.getLoc());
  OwningOpRef<ModuleOp> emitted = ModuleOp::create(module.getLoc());
  OpBuilder b(emitted->getBodyRegion());
  auto kernels = gpu::GPUModuleOp::create(b, module.getLoc(), kGpuModule);
  for (auto mesh : module.getOps<dist::MeshOp>())
    copy->push_back(mesh->clone());
  for (auto kernel : module.getOps<func::FuncOp>()) {
    if (!kernel->hasAttr(kernels::kKernelAttr) || kernel.isExternal())
      continue;
    auto clone = cast<func::FuncOp>(kernel->clone());
    copy->push_back(clone);
    kernels::decomposeAll(clone);
    std::string error;
    auto plan = kernels::KernelPlan::create(clone, error);
    if (plan)
      error = limitOf(*plan);
    if (!plan || !error.empty())
      return kernel.emitError("no GPU kernel can be generated: ") << error;
    ArrayRef<int64_t> alignments;
    if (auto given =
            kernel->getAttrOfType<DenseI64ArrayAttr>(kernels::kAlignAttr))
      alignments = given;
    GpuEmitter(*plan, kernels, kernel.getLoc(), kernel.getName(), alignments)
        .run();
  }
  return emitted;
}

LogicalResult cleave::codegen::expandGpuMath(ModuleOp kernels) {
  widenBFloat16Math(kernels);
  return failure(failed(expandMath(kernels)) ||
                 failed(emulateBFloat16(kernels)));
}

std::vector<GpuKernel> cleave::codegen::gpuKernels(ModuleOp kernels) {
  std::vector<GpuKernel> found;
  kernels.walk([&](gpu::GPUFuncOp func) {
    if (!func.isKernel())
      return;
    GpuKernel kernel;
    kernel.symbol = func.getName().str();
    kernel.grid = (*func.getKnownGridSize())[0];
    kernel.block = (*func.getKnownBlockSize())[0];
    for (BlockArgument buffer : func.getWorkgroupAttributions()) {
      auto type = cast<MemRefType>(buffer.getType());
      int64_t width = type.getElementTypeBitWidth() / 8;
      kernel.sharedBytes = llvm::alignTo(kernel.sharedBytes, width) +
                           type.getNumElements() * width;
    }
    kernel.arguments = func.getNumArguments();
    found.push_back(kernel);
  });
  return found;
}
