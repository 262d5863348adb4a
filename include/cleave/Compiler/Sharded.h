// Models in .mlir that have their own shardings: a dist.mesh, and dist.sharding
// on arguments and results. Such a model is partitioned as annotated.

#ifndef CLEAVE_COMPILER_SHARDED_H
#define CLEAVE_COMPILER_SHARDED_H

#include "cleave/Config/Load.h"

#include "mlir/IR/BuiltinOps.h"

#include <optional>
#include <string>

namespace cleave::compiler {

// Returns whether the module has a dist.mesh.
bool isSharded(mlir::ModuleOp module);

// Renames the only function of the module to @forward, and adds names and roles
// to the arguments and results that have none. Reports an error if the model
// cannot be compiled with this configuration.
mlir::LogicalResult prepareSharded(mlir::ModuleOp module,
                                   const std::string &path,
                                   const Config &config);

// Returns the mesh of a .mlir file, or nullopt if the file has no mesh or
// cannot be read (the error is reported when the file is loaded).
std::optional<Mesh> meshInFile(const std::string &path);

// Returns the mesh of the module, or `other` if the module has none.
Mesh meshOf(mlir::ModuleOp module, const Mesh &other);

// Makes the module a program for one rank: removes its mesh axes, shardings and
// sharding constraints.
void removeShardings(mlir::ModuleOp module);

} // namespace cleave::compiler

#endif // CLEAVE_COMPILER_SHARDED_H
