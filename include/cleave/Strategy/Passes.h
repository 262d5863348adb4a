// Strategies: passes that place constraints and do nothing else.

#ifndef CLEAVE_STRATEGY_PASSES_H
#define CLEAVE_STRATEGY_PASSES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace cleave {
#define GEN_PASS_DECL
#include "cleave/Strategy/Passes.h.inc"

/// On a module, until `strategy-shard` removes it: the shardings of parameters
/// that the user gives, each a #nn.shard.
inline constexpr llvm::StringLiteral kShardAttr = "nn.shard";

/// Reports the first pattern of [[shard]] that no parameter of a whole model
/// matches; a stage of a pipeline need not have the parameter of a pattern.
mlir::LogicalResult checkShardMatches(mlir::ModuleOp module,
                                      llvm::ArrayRef<std::string> matches);
} // namespace cleave

#endif
