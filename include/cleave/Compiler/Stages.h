// Turns a model with its loss into one module for each stage of a pipeline.

#ifndef CLEAVE_COMPILER_STAGES_H
#define CLEAVE_COMPILER_STAGES_H

#include "cleave/Config/Load.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <vector>

namespace cleave::compiler {

// Turns the module after addLoss into a module of modules @stage0, @stage1,
// ..., each with its part of @loss and @forward, its @loss_grad, @update and
// @init_state. If the module has no @loss, only @forward is cut. With
// `updatesApart`, @update runs after each microbatch. Fails if the model, or
// the name patterns in the key parallel.pipeline.stages, do not allow a cut.
mlir::LogicalResult cutIntoStages(mlir::ModuleOp module, const Config &config,
                                  int64_t stages, bool tapGradients,
                                  bool updatesApart = false);

// Returns the stages as separate modules; `module` is empty afterwards.
std::vector<mlir::OwningOpRef<mlir::ModuleOp>>
takeStages(mlir::ModuleOp module);

} // namespace cleave::compiler

#endif // CLEAVE_COMPILER_STAGES_H
