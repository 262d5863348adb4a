// Edits that make a program smaller; each is applied to a copy of the program.
// Functions, operations, and the arguments and results of functions are
// numbered in a fixed order, so that a number means the same in every copy. An
// edit with the parameters `begin` and `end` changes what has the numbers from
// `begin` to `end` - 1. An edit returns false if there is nothing to do; the
// copy may then be partially edited.

#ifndef CLEAVE_LIB_REDUCE_EDITS_H
#define CLEAVE_LIB_REDUCE_EDITS_H

#include "cleave/Partition/Utils/PortTable.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace cleave::reduce {

using Ops = llvm::SmallVector<mlir::Operation *>;

/// Returns the functions with a body.
llvm::SmallVector<mlir::func::FuncOp> functionsOf(mlir::ModuleOp module);
/// Returns all operations of all functions without terminators. The operations
/// of loops and branches come after the loop or branch.
Ops opsOf(mlir::ModuleOp module);
llvm::SmallVector<partition::Port> resultsOf(mlir::ModuleOp module);

/// Sets an attribute of an argument or result; null removes the attribute.
void setAttr(const partition::Port &port, llvm::StringRef name,
             mlir::Attribute value);

/// Erases operations with unread results and unread arguments, and makes the
/// types of functions match their bodies.
void tidy(mlir::ModuleOp module);

bool dropFunction(mlir::ModuleOp module, size_t number);
/// Drops the names and roles of arguments and results.
bool dropNames(mlir::ModuleOp module, size_t begin, size_t end);
/// dropPortNotes removes attributes from arguments and results, dropOpNotes
/// from operations. Names, roles and shardings stay; all other discardable
/// attributes are removed, such as the type of the unsharded tensor.
bool dropPortNotes(mlir::ModuleOp module, size_t begin, size_t end);
bool dropOpNotes(mlir::ModuleOp module, size_t begin, size_t end);
/// Drops results of functions, except the last result of each function.
bool dropResults(mlir::ModuleOp module, size_t begin, size_t end);
/// Drops operations without results.
bool dropOps(mlir::ModuleOp module, size_t begin, size_t end);
/// Replaces the results of the operations with the numbers from `begin` to
/// `end` - 1 by new arguments of their functions. Leaves out operations without
/// operands.
bool cutOps(mlir::ModuleOp module, size_t begin, size_t end);
/// Replaces an operation's result by one of its operands.
bool skipOp(mlir::ModuleOp module, size_t number, unsigned operand);
/// Replaces a result of a function by an operand of the operation that computes
/// the result.
bool returnOperand(mlir::ModuleOp module, size_t result, unsigned operand);
/// Replaces a loop by one iteration, or a branch by one of its two regions.
bool inlineRegion(mlir::ModuleOp module, size_t number, unsigned side);
/// Replaces the reads of argument `from` by reads of `to`.
bool mergeArguments(mlir::ModuleOp module, size_t function, unsigned from,
                    unsigned to);

} // namespace cleave::reduce

#endif // CLEAVE_LIB_REDUCE_EDITS_H
