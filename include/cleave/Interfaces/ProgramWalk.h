// How a program is walked once it is partitioned: its actions, and what each
// does. Passes that treat all of a program go through these, so that what a
// program may consist of is said once.

#ifndef CLEAVE_INTERFACES_PROGRAMWALK_H
#define CLEAVE_INTERFACES_PROGRAMWALK_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace cleave {

/// A unit attribute on functions that become generated code.
inline constexpr llvm::StringLiteral kKernelAttr = "nn.kernel";

/// Functions that are actions: neither kernels nor declarations. `stage`: those
/// of this stage; -1: all.
llvm::SmallVector<mlir::func::FuncOp> actionsOf(mlir::ModuleOp module,
                                                int64_t stage = -1);

/// The stages whose functions share the module, from 0 to the last, or {-1}: no
/// stages.
llvm::SmallVector<int64_t> stagesOf(mlir::ModuleOp module);

/// What an action does, in order, up to its return. Actions have one block.
inline mlir::Block &actionBody(mlir::func::FuncOp action) {
  return action.getBody().front();
}

} // namespace cleave

#endif
