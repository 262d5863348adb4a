// Iterates over a partitioned program: its actions, and the operations of each
// action. Passes that process a whole program use these functions, so that the
// structure of a program is defined in one place.

#ifndef CLEAVE_INTERFACES_PROGRAMWALK_H
#define CLEAVE_INTERFACES_PROGRAMWALK_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace cleave {

/// A unit attribute on functions for which code is generated.
inline constexpr llvm::StringLiteral kKernelAttr = "nn.kernel";

/// Returns the functions that are actions, which are neither kernels nor bodies
/// of loops nor declarations: the actions of stage `stage`, or of all stages
/// for -1.
llvm::SmallVector<mlir::func::FuncOp> actionsOf(mlir::ModuleOp module,
                                                int64_t stage = -1);

/// Returns the functions whose operations become commands: actions, and the
/// bodies of loops that they run (rt.repeat).
llvm::SmallVector<mlir::func::FuncOp> commandListsOf(mlir::ModuleOp module,
                                                     int64_t stage = -1);

/// Returns the stages of the functions in the module, from 0 to the last, or
/// {-1} if the module has no stages.
llvm::SmallVector<int64_t> stagesOf(mlir::ModuleOp module);

/// Returns the block with the operations of an action or of the body of a loop,
/// in order, including its return. These functions have one block.
inline mlir::Block &actionBody(mlir::func::FuncOp action) {
  return action.getBody().front();
}

} // namespace cleave

#endif
