// Attaches the Sharding models of all families of operations.

#include "cleave/Interfaces/Models.h"

#include "mlir/IR/DialectRegistry.h"

void cleave::registerShardingModels(mlir::DialectRegistry &registry) {}
