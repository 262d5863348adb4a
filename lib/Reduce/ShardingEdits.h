// Edits of shardings and meshes; see Edits.h.

#ifndef CLEAVE_LIB_REDUCE_SHARDINGEDITS_H
#define CLEAVE_LIB_REDUCE_SHARDINGEDITS_H

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "mlir/IR/BuiltinOps.h"

namespace cleave::reduce {

/// Counts everything in the program that can have a sharding: first the
/// arguments and results of functions, then the dist.constrain operations. The
/// edits below refer to a sharding by its number in this order.
size_t countSlots(mlir::ModuleOp module);

/// Removes the shardings of the arguments and results with the numbers from
/// `begin` to `end` - 1. Constraints are removed like other operations.
bool dropShardings(mlir::ModuleOp module, size_t begin, size_t end);
/// Simplifies sharding number `number`: closes all of its dimensions, and sets
/// its priority to 0.
bool simplifySharding(mlir::ModuleOp module, size_t number);
/// Drops an axis from sharding number `number`. `reference` is the index of
/// this axis among all axes that the sharding names.
bool dropReference(mlir::ModuleOp module, size_t number, size_t reference);
/// Removes an axis from a mesh and from all shardings on this mesh.
bool dropAxis(mlir::ModuleOp module, size_t mesh, size_t axis);

llvm::SmallVector<dist::MeshOp> meshesOf(mlir::ModuleOp module);

} // namespace cleave::reduce

#endif // CLEAVE_LIB_REDUCE_SHARDINGEDITS_H
