// Warnings that the compiler gives about an inefficient use of the ranks: idle
// ranks, pipeline bubbles, padding.

#ifndef CLEAVE_COMPILER_PLANWARNINGS_H
#define CLEAVE_COMPILER_PLANWARNINGS_H

#include "cleave/Config/Load.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace cleave::compiler {

// Warns if ranks have no sample, or if ranks are idle for more than 30 % of a
// step under the pipeline schedule. `model` is not partitioned yet.
void warnOfPlan(mlir::ModuleOp model, const Config &config, const Mesh &mesh);

// Warns about pipeline stages without parameters.
void warnOfEmptyStages(
    llvm::ArrayRef<mlir::OwningOpRef<mlir::ModuleOp>> stages);

// Warns if more than 10 % of a parameter is padding, except for padding by
// tensor parallelism, which the tensor strategy reports itself. `module` has
// per-rank programs.
void warnOfPadding(mlir::ModuleOp module, const Config &config);

} // namespace cleave::compiler

#endif // CLEAVE_COMPILER_PLANWARNINGS_H
