// Edits that make a program smaller, each on a copy of it. Places are numbers
// in a fixed order, so that they mean the same in every copy. An edit returns
// false where there is nothing to do; the program may then be half edited.

#ifndef CLEAVE_LIB_REDUCE_EDITS_H
#define CLEAVE_LIB_REDUCE_EDITS_H

#include "cleave/Partition/Utils/PortTable.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace cleave::reduce {

using Ops = llvm::SmallVector<mlir::Operation *>;

/// Functions with a body.
llvm::SmallVector<mlir::func::FuncOp> functionsOf(mlir::ModuleOp module);
/// All operations of all functions, those of loops and branches after them;
/// without terminators.
Ops opsOf(mlir::ModuleOp module);
llvm::SmallVector<partition::Port> resultsOf(mlir::ModuleOp module);

/// Sets an attribute of a port; null removes it.
void setAttr(const partition::Port &port, llvm::StringRef name,
             mlir::Attribute value);

/// Erases operations whose results are not read, and arguments likewise, and
/// makes the types of functions those of their bodies.
void tidy(mlir::ModuleOp module);

bool dropFunction(mlir::ModuleOp module, size_t number);
/// Names and roles of ports.
bool dropNames(mlir::ModuleOp module, size_t begin, size_t end);
/// What ports and operations carry besides names, roles and shardings: the
/// types that tiles are of, views of files, ...
bool dropPortNotes(mlir::ModuleOp module, size_t begin, size_t end);
bool dropOpNotes(mlir::ModuleOp module, size_t begin, size_t end);
/// Results of functions, but for the last of each.
bool dropResults(mlir::ModuleOp module, size_t begin, size_t end);
/// Operations without results.
bool dropOps(mlir::ModuleOp module, size_t begin, size_t end);
/// What is read of these operations becomes arguments.
bool cutOps(mlir::ModuleOp module, size_t begin, size_t end);
/// An operation's result becomes one of its operands.
bool skipOp(mlir::ModuleOp module, size_t number, unsigned operand);
/// A result of a function becomes an operand of what gives it.
bool returnOperand(mlir::ModuleOp module, size_t result, unsigned operand);
/// A loop becomes one trip, a branch one of its sides.
bool inlineRegion(mlir::ModuleOp module, size_t number, unsigned side);
/// Argument `from` is read as `to` is.
bool mergeArguments(mlir::ModuleOp module, size_t function, unsigned from,
                    unsigned to);

} // namespace cleave::reduce

#endif // CLEAVE_LIB_REDUCE_EDITS_H
