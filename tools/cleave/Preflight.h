// What is known to be wrong before a program is compiled: the data, the device,
// memory that cannot suffice however it is planned.

#ifndef CLEAVE_TOOLS_PREFLIGHT_H
#define CLEAVE_TOOLS_PREFLIGHT_H

#include "cleave/Config/Load.h"

#include "mlir/IR/BuiltinOps.h"

namespace cleave::driver {

// Fails with BadUsage where there is no device of target.kind, or
// target.cluster cannot be read.
void checkMachine(const Config &config);

// Fails with BadUsage unless data.path, if it is set, fits the inputs of @loss.
void checkData(mlir::ModuleOp model, const Config &config);

// Fails with BadUsage where a rank needs more than `limit` bytes (0: any) for
// its share of parameters, gradients and optimizer state alone, if they are
// split as far as the mesh and ZeRO can.
void checkMemoryFloor(mlir::ModuleOp model, const Config &config,
                      const Mesh &mesh, int64_t limit);

} // namespace cleave::driver

#endif // CLEAVE_TOOLS_PREFLIGHT_H
