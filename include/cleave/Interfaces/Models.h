// The registration function of each interface's models; register.cpp calls all
// of them.

#ifndef CLEAVE_INTERFACES_MODELS_H
#define CLEAVE_INTERFACES_MODELS_H

namespace mlir {
class DialectRegistry;
}

namespace cleave {

// These models are in lib/Interfaces/Sharding, Derivative, Cost, Evaluate,
// Lowering and Streaming.
void registerShardingModels(mlir::DialectRegistry &registry);
void registerDerivativeModels(mlir::DialectRegistry &registry);
void registerCostModels(mlir::DialectRegistry &registry);
void registerEvaluateModels(mlir::DialectRegistry &registry);
void registerLoweringModels(mlir::DialectRegistry &registry);
void registerStreamingModels(mlir::DialectRegistry &registry);

} // namespace cleave

#endif
