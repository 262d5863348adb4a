// Checks a model in nn IR, which may be handwritten, for everything that the
// phases assume.

#ifndef CLEAVE_LIB_COMPILER_NNMODEL_H
#define CLEAVE_LIB_COMPILER_NNMODEL_H

#include "cleave/Config/Load.h"

#include "mlir/IR/BuiltinOps.h"

namespace cleave::compiler {

/// Checks names, roles, types and sizes of a model without shardings against
/// the configuration. Errors state what was found and what was expected.
mlir::LogicalResult checkNnModel(mlir::ModuleOp module, const std::string &path,
                                 const Config &config);

} // namespace cleave::compiler

#endif // CLEAVE_LIB_COMPILER_NNMODEL_H
