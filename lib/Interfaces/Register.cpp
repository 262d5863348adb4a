// Attaches the models of all interfaces.

#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Interfaces/Models.h"

void cleave::registerInterfaceModels(mlir::DialectRegistry &registry) {
  registerShardingModels(registry);
  registerDerivativeModels(registry);
  registerCostModels(registry);
  registerEvaluateModels(registry);
  registerLoweringModels(registry);
  registerStreamingModels(registry);
}
