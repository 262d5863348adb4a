// Attaches the Derivative models of all families of operations.

#include "cleave/Interfaces/Models.h"

#include "mlir/IR/DialectRegistry.h"

void cleave::registerDerivativeModels(mlir::DialectRegistry &registry) {}
