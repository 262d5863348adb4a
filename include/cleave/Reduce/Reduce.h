//===- Reduce.h - makes a failing program small -----------------*- C++ -*-===//
//
// Reduces a failing program to fewer functions, results, operations, shardings
// and mesh axes, and to smaller sizes, as long as it still fails. Unlike MLIR's
// own reducer it knows names and shardings at function boundaries, and
// dimensions that must have one size by a sharding rule.
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_REDUCE_REDUCE_H
#define CLEAVE_REDUCE_REDUCE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <string>

namespace cleave::reduce {

/// Why `program` cannot be reduced; empty where it can: a module of functions,
/// each of one block that ends with func.return.
std::string cannotReduce(mlir::ModuleOp program);

/// The smallest program found. `fails` says whether a candidate, which the
/// verifier has accepted, still fails; `program` itself does. `improved` is
/// called with each program that is smaller than those before it.
mlir::OwningOpRef<mlir::ModuleOp>
shrink(mlir::ModuleOp program, llvm::function_ref<bool(mlir::ModuleOp)> fails,
       llvm::function_ref<void(mlir::ModuleOp)> improved = nullptr);

/// Operations in functions, terminators not counted.
size_t countOps(mlir::ModuleOp program);

} // namespace cleave::reduce

#endif // CLEAVE_REDUCE_REDUCE_H
