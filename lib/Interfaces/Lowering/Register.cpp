// Attaches the Lowering models of all families of operations.

#include "cleave/Interfaces/Models.h"

#include "mlir/IR/DialectRegistry.h"

void cleave::registerLoweringModels(mlir::DialectRegistry &registry) {}
