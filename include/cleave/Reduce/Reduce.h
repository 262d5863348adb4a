//===- Reduce.h - reducer of failing programs -------------------*- C++ -*-===//
//
// Reduces a failing program to fewer functions, results, operations, shardings
// and mesh axes, and to smaller sizes, as long as it still fails. Unlike
// mlir-reduce, this reducer handles names and shardings at function boundaries,
// and dimensions that must have the same size by a sharding rule.
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

/// Returns the smallest failing program found. `fails` says whether a candidate
/// that passed the verifier still fails; `program` itself must fail. `improved`
/// is called with each program that is smaller than all before.
mlir::OwningOpRef<mlir::ModuleOp>
shrink(mlir::ModuleOp program, llvm::function_ref<bool(mlir::ModuleOp)> fails,
       llvm::function_ref<void(mlir::ModuleOp)> improved = nullptr);

/// Returns the number of operations in functions, without terminators.
size_t countOps(mlir::ModuleOp program);

} // namespace cleave::reduce

#endif // CLEAVE_REDUCE_REDUCE_H
