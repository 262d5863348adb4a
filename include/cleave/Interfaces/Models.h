// Functions that register the implementations (external models) of each
// interface. registerInterfaceModels in Interfaces.h calls all of them.

#ifndef CLEAVE_INTERFACES_MODELS_H
#define CLEAVE_INTERFACES_MODELS_H

namespace mlir {
class DialectRegistry;
}

namespace cleave {

// The implementations are in the folders Sharding, Derivative, Cost, Evaluate,
// Lowering and Streaming of lib/Interfaces.
void registerShardingModels(mlir::DialectRegistry &registry);
void registerDerivativeModels(mlir::DialectRegistry &registry);
void registerCostModels(mlir::DialectRegistry &registry);
void registerEvaluateModels(mlir::DialectRegistry &registry);
void registerLoweringModels(mlir::DialectRegistry &registry);
void registerStreamingModels(mlir::DialectRegistry &registry);

} // namespace cleave

#endif
