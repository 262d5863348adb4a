// The registration function of each question; register.cpp calls them all.

#ifndef CLEAVE_INTERFACES_MODELS_H
#define CLEAVE_INTERFACES_MODELS_H

namespace mlir {
class DialectRegistry;
}

namespace cleave {

// lib/Interfaces/Sharding, Derivative, Cost, Evaluate, Lowering, Streaming.
void registerShardingModels(mlir::DialectRegistry &registry);
void registerDerivativeModels(mlir::DialectRegistry &registry);
void registerCostModels(mlir::DialectRegistry &registry);
void registerEvaluateModels(mlir::DialectRegistry &registry);
void registerLoweringModels(mlir::DialectRegistry &registry);
void registerStreamingModels(mlir::DialectRegistry &registry);

} // namespace cleave

#endif
