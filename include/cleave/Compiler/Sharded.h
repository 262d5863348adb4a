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

// Makes the one function of the module @forward, with names and roles where it
// has none. An error says what does not fit.
mlir::LogicalResult prepareSharded(mlir::ModuleOp module,
                                   const std::string &path,
                                   const Config &config);

// The mesh of a .mlir file; none where it has none, or cannot be read (which is
// told when it is loaded).
std::optional<Mesh> meshInFile(const std::string &path);

// The mesh of the module; `other` where it has none.
Mesh meshOf(mlir::ModuleOp module, const Mesh &other);

// Leaves one rank: no axes, no shardings, no constraints.
void removeShardings(mlir::ModuleOp module);

} // namespace cleave::compiler

#endif // CLEAVE_COMPILER_SHARDED_H
