// Annotates a kernel function with the data that the host needs to launch it.

#include "cleave/Fusion/Fusion.h"
#include "cleave/Fusion/KernelPlan.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::kernels;

LogicalResult kernels::annotateKernel(func::FuncOp kernel) {
  // Planning decomposes operations, but the kernel function keeps its original
  // ones, so a copy is planned. The copy is inserted next to the function, so
  // that it finds the module's meshes.
  OwningOpRef<func::FuncOp> copy = kernel.clone();
  if (Block *block = kernel->getBlock())
    block->getOperations().insertAfter(kernel->getIterator(), *copy);
  decomposeAll(*copy);
  std::string error;
  auto plan = KernelPlan::create(*copy, error);
  if (!plan)
    return kernel.emitError("no kernel can be generated: ") << error;
  Builder b(kernel.getContext());
  kernel->setAttr(kKernelAttr, b.getUnitAttr());
  kernel->setAttr(kExtentAttr, b.getI64IntegerAttr(plan->extent));
  kernel->setAttr(kGrainAttr, b.getI64IntegerAttr(plan->grain));
  SmallVector<int64_t> pairs;
  for (auto [result, argument] : plan->inPlace())
    pairs.append({result, argument});
  kernel->setAttr(kInPlaceAttr, b.getDenseI64ArrayAttr(pairs));
  return success();
}
