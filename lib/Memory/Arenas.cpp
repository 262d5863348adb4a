// The arena sizes of a program after rt-plan-memory.

#include "cleave/Memory/Arenas.h"

#include "cleave/Dialect/RT/IR/RT.h"

using namespace mlir;
using namespace cleave;

FailureOr<PlannedArenas> cleave::plannedArenas(ModuleOp module) {
  auto sizes = module->getAttrOfType<DenseI64ArrayAttr>(rt::kArenasAttr);
  if (!sizes || sizes.size() != 2)
    return module.emitError(
        "the module has no planned memory; run rt-plan-memory first");
  return PlannedArenas{sizes[rt::kStateArena], sizes[rt::kTransientArena]};
}
