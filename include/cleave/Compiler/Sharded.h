// A model in .mlir with shardings of its own: a dist.mesh, and dist.sharding on
// arguments and results. It is partitioned as annotated.

#ifndef CLEAVE_COMPILER_SHARDED_H
#define CLEAVE_COMPILER_SHARDED_H

#include "cleave/Config/Load.h"

#include "mlir/IR/BuiltinOps.h"

#include <optional>
#include <string>

namespace cleave::compiler {

bool isSharded(mlir::ModuleOp module);

// Renames the only function of the module to @forward, and adds names and roles
// where they are missing. Reports an error if the module does not fit.
mlir::LogicalResult prepareSharded(mlir::ModuleOp module,
                                   const std::string &path,
                                   const Config &config);

// The mesh of a .mlir file; none if it has none, or cannot be read (which is
// reported when it is loaded).
std::optional<Mesh> meshInFile(const std::string &path);

// The mesh of the module; `other` where it has none.
Mesh meshOf(mlir::ModuleOp module, const Mesh &other);

// Makes it a program for one rank: removes axes, shardings and constraints.
void removeShardings(mlir::ModuleOp module);

} // namespace cleave::compiler

#endif // CLEAVE_COMPILER_SHARDED_H
