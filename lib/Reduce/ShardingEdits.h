// Edits of shardings and meshes; see Edits.h.

#ifndef CLEAVE_LIB_REDUCE_SHARDINGEDITS_H
#define CLEAVE_LIB_REDUCE_SHARDINGEDITS_H

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "mlir/IR/BuiltinOps.h"

namespace cleave::reduce {

/// Counts the slots of the program that can have a sharding: its ports, then
/// its constraints.
size_t countSlots(mlir::ModuleOp module);

/// Removes the shardings of the ports with these numbers. Constraints are
/// removed like other operations.
bool dropShardings(mlir::ModuleOp module, size_t begin, size_t end);
/// Simplifies a sharding: closes all of its dimensions, and sets its priority
/// to 0.
bool simplifySharding(mlir::ModuleOp module, size_t number);
/// Drops one of the axes that the sharding names.
bool dropReference(mlir::ModuleOp module, size_t number, size_t reference);
/// Removes an axis from a mesh and from all shardings on this mesh.
bool dropAxis(mlir::ModuleOp module, size_t mesh, size_t axis);

llvm::SmallVector<dist::MeshOp> meshesOf(mlir::ModuleOp module);

} // namespace cleave::reduce

#endif // CLEAVE_LIB_REDUCE_SHARDINGEDITS_H
