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

// What can be known to be wrong of a training run once @loss is there, as an
// error: data.path that does not fit its inputs, memory that cannot suffice.
mlir::LogicalResult checkTraining(mlir::ModuleOp model, const Config &config,
                                  const Mesh &mesh);

// Warns where the ranks of this process are more than its cores.
void warnOfCores(const Config &config, const Mesh &mesh);

} // namespace cleave::driver

#endif // CLEAVE_TOOLS_PREFLIGHT_H
