// Attaches the Evaluate models of all families of operations.

#include "cleave/Interfaces/Models.h"

#include "mlir/IR/DialectRegistry.h"

void cleave::registerEvaluateModels(mlir::DialectRegistry &registry) {}
