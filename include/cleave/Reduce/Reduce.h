//===- Reduce.h - reducer of failing programs -------------------*- C++ -*-===//
//
// Reduces a failing program to fewer functions, results, operations, shardings
// and mesh axes, and to smaller sizes, as long as it still fails. Unlike
// mlir-reduce, this reducer keeps the names and shardings of arguments and
// results consistent between functions, and changes the sizes of dimensions
// that a sharding rule connects together.
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_REDUCE_REDUCE_H
#define CLEAVE_REDUCE_REDUCE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <string>

namespace cleave::reduce {

/// Returns why `program` cannot be reduced, or "" if it can. A program must be
/// a module of functions, each with one block that ends with func.return.
std::string cannotReduce(mlir::ModuleOp program);

/// Returns the smallest failing program found. `fails` returns whether a
/// candidate, which has passed the MLIR verifier, still fails; it must be true
/// for `program` itself. `improved` is called with each failing program that is
/// smaller than all previous ones.
mlir::OwningOpRef<mlir::ModuleOp>
shrink(mlir::ModuleOp program, llvm::function_ref<bool(mlir::ModuleOp)> fails,
       llvm::function_ref<void(mlir::ModuleOp)> improved = nullptr);

/// Returns the number of operations in all functions, without terminators.
size_t countOps(mlir::ModuleOp program);

} // namespace cleave::reduce

#endif // CLEAVE_REDUCE_REDUCE_H
