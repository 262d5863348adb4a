// Edits of shardings and meshes; see Edits.h.

#ifndef CLEAVE_LIB_REDUCE_SHARDINGEDITS_H
#define CLEAVE_LIB_REDUCE_SHARDINGEDITS_H

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "mlir/IR/BuiltinOps.h"

namespace cleave::reduce {

/// Where a program asks for shardings: its ports, then its constraints.
size_t countSlots(mlir::ModuleOp module);

/// No sharding for the ports of these numbers. Constraints go as operations do.
bool dropShardings(mlir::ModuleOp module, size_t begin, size_t end);
/// Closes all dimensions and sets the priority to 0.
bool simplifySharding(mlir::ModuleOp module, size_t number);
/// Drops one of the axes that the sharding names.
bool dropReference(mlir::ModuleOp module, size_t number, size_t reference);
/// Drops an axis of a mesh, and of all shardings on it.
bool dropAxis(mlir::ModuleOp module, size_t mesh, size_t axis);

llvm::SmallVector<dist::MeshOp> meshesOf(mlir::ModuleOp module);

} // namespace cleave::reduce

#endif // CLEAVE_LIB_REDUCE_SHARDINGEDITS_H
