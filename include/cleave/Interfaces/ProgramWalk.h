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

/// Returns the actions of stage `stage`, or of all stages if `stage` is -1. An
/// action is a function that is not a kernel, the body of a loop or a
/// declaration.
llvm::SmallVector<mlir::func::FuncOp> actionsOf(mlir::ModuleOp module,
                                                int64_t stage = -1);

/// Returns the functions whose operations become commands of the runtime: the
/// actions, and the bodies of the loops (rt.repeat) that the actions run.
llvm::SmallVector<mlir::func::FuncOp> commandListsOf(mlir::ModuleOp module,
                                                     int64_t stage = -1);

/// Returns the stages of the functions in the module, from 0 to the last, or
/// {-1} if the module has no stages.
llvm::SmallVector<int64_t> stagesOf(mlir::ModuleOp module);

/// Returns the only block of a function that is an action or the body of a
/// loop. The block ends with the function's return.
inline mlir::Block &actionBody(mlir::func::FuncOp action) {
  return action.getBody().front();
}

} // namespace cleave

#endif
