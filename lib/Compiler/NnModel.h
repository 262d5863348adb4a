// What the phases take for granted of a model in nn IR that a person may have
// written.

#ifndef CLEAVE_LIB_COMPILER_NNMODEL_H
#define CLEAVE_LIB_COMPILER_NNMODEL_H

#include "cleave/Config/Load.h"

#include "mlir/IR/BuiltinOps.h"

namespace cleave::compiler {

/// Names, roles, types and sizes of a model without shardings, beside what the
/// configuration says of it. An error names what is wrong and was expected.
mlir::LogicalResult checkNnModel(mlir::ModuleOp module, const std::string &path,
                                 const Config &config);

} // namespace cleave::compiler

#endif // CLEAVE_LIB_COMPILER_NNMODEL_H
