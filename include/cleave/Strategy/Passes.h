// Strategies: passes that decide how tensors are sharded, by sharding
// attributes and constraints.

#ifndef CLEAVE_STRATEGY_PASSES_H
#define CLEAVE_STRATEGY_PASSES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace cleave {
#define GEN_PASS_DECL
#include "cleave/Strategy/Passes.h.inc"

/// Attribute of a module with the shardings that the user gives for parameters,
/// as a list of #nn.shard. `strategy-shard` reads and removes it.
inline constexpr llvm::StringLiteral kShardAttr = "nn.shard";

/// Reports an error for the first of the patterns `matches` (of the entries
/// [[shard]] in the configuration) that matches no parameter of the model. It
/// is not called for the module of a single pipeline stage, since the
/// parameters that a pattern matches may be in other stages.
mlir::LogicalResult checkShardMatches(mlir::ModuleOp module,
                                      llvm::ArrayRef<std::string> matches);
} // namespace cleave

#endif
