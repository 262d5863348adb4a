// Models in nn IR.

#ifndef CLEAVE_TOOLS_NNMODEL_H
#define CLEAVE_TOOLS_NNMODEL_H

#include "Command.h"

#include "mlir/IR/BuiltinOps.h"

namespace cleave::driver {

// Throws where the module is no model: one function @forward of one block whose
// arguments and results are static tensors with distinct names and known roles,
// and whose sizes agree with the configuration.
void checkNnModel(mlir::ModuleOp module, const std::string &path,
                  const Config &config);

} // namespace cleave::driver

#endif // CLEAVE_TOOLS_NNMODEL_H
