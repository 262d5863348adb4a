// Attaches the Cost models of all families of operations.

#include "cleave/Interfaces/Models.h"

#include "mlir/IR/DialectRegistry.h"

void cleave::registerCostModels(mlir::DialectRegistry &registry) {}
