// Errors that can be found before a program is compiled: unsuitable data, a
// missing device, and insufficient memory.

#ifndef CLEAVE_TOOLS_PREFLIGHT_H
#define CLEAVE_TOOLS_PREFLIGHT_H

#include "cleave/Config/Load.h"

#include "mlir/IR/BuiltinOps.h"

namespace cleave::driver {

// Fails with BadUsage if there is no device of target.kind, or if
// target.cluster cannot be read.
void checkMachine(const Config &config);

// Checks that a model can be trained, once it has the function @loss. Emits an
// error if data.path does not fit the inputs, or if memory cannot suffice under
// any plan.
mlir::LogicalResult checkTraining(mlir::ModuleOp model, const Config &config,
                                  const Mesh &mesh);

// Warns if the ranks of this process outnumber its cores.
void warnOfCores(const Config &config, const Mesh &mesh);

} // namespace cleave::driver

#endif // CLEAVE_TOOLS_PREFLIGHT_H
