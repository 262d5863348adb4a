// A model in .mlir that says itself how it lies over a mesh: a dist.mesh, and
// dist.sharding on arguments and results. It is partitioned as annotated.

#ifndef CLEAVE_TOOLS_SHARDEDMODEL_H
#define CLEAVE_TOOLS_SHARDEDMODEL_H

#include "cleave/Config/Load.h"

#include "mlir/IR/BuiltinOps.h"

#include <optional>
#include <string>

namespace cleave::driver {

bool isSharded(mlir::ModuleOp module);

// Makes the one function of the module @forward, with names and roles where it
// has none. Throws a Failure that says what does not fit.
void prepareSharded(mlir::ModuleOp module, const std::string &path,
                    const Config &config);

// The mesh of a .mlir file; none where it has none, or cannot be read (which is
// told when it is loaded).
std::optional<Mesh> meshInFile(const std::string &path);

// The mesh of the module; `other` where it has none.
Mesh meshOf(mlir::ModuleOp module, const Mesh &other);

// Leaves one rank: no axes, no shardings, no constraints.
void removeShardings(mlir::ModuleOp module);

} // namespace cleave::driver

#endif // CLEAVE_TOOLS_SHARDEDMODEL_H
