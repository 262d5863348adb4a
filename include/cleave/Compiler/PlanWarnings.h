// Warnings about a plan before it runs: idle ranks, pipeline bubbles, padding.

#ifndef CLEAVE_COMPILER_PLANWARNINGS_H
#define CLEAVE_COMPILER_PLANWARNINGS_H

#include "cleave/Config/Load.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace cleave::compiler {

// Warns where ranks have no sample, or a schedule is idle for more than 30 % of
// a step. `model`: before it is partitioned.
void warnOfPlan(mlir::ModuleOp model, const Config &config, const Mesh &mesh);

// Warns where stages of a pipeline hold no parameters.
void warnOfEmptyStages(
    llvm::ArrayRef<mlir::OwningOpRef<mlir::ModuleOp>> stages);

// Warns where more than 10 % of a parameter is padding, except for padding by
// tensor parallelism, which its pass reports. `module`: per-rank programs.
void warnOfPadding(mlir::ModuleOp module, const Config &config);

} // namespace cleave::compiler

#endif // CLEAVE_COMPILER_PLANWARNINGS_H
