// Strategies: passes that place constraints and do nothing else.

#ifndef CLEAVE_STRATEGY_PASSES_H
#define CLEAVE_STRATEGY_PASSES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace cleave {
#define GEN_PASS_DECL
#include "cleave/Strategy/Passes.h.inc"

/// Attribute of a module until `strategy-shard` removes it: the shardings that
/// the user gives for parameters, each a #nn.shard.
inline constexpr llvm::StringLiteral kShardAttr = "nn.shard";

/// Reports an error for the first [[shard]] entry whose pattern matches no
/// parameter of the model. A single pipeline stage is not checked, since the
/// parameters that a pattern matches may be in other stages.
mlir::LogicalResult checkShardMatches(mlir::ModuleOp module,
                                      llvm::ArrayRef<std::string> matches);
} // namespace cleave

#endif
