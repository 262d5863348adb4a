// From the model with its loss to one module for each stage of a pipeline.

#ifndef CLEAVE_TOOLS_STAGES_H
#define CLEAVE_TOOLS_STAGES_H

#include "ImportModel.h"

#include <vector>

namespace cleave::driver {

// Turns the module after runLossPhase into a module of modules @stage0,
// @stage1, ..., each with its part of @loss and @forward, its @loss_grad,
// @update and @init_state. A module without @loss has only @forward to cut.
// `updatesApart`: @update after each microbatch. Fails with BadUsage where the
// model or the patterns of parallel.pipeline.stages do not allow it.
void cutIntoStages(mlir::ModuleOp module, const Config &config, int64_t stages,
                   bool tapGradients, bool updatesApart = false);

// The same, each on its own; `module` is left empty.
std::vector<mlir::OwningOpRef<mlir::ModuleOp>>
buildStages(mlir::ModuleOp module, const Config &config, int64_t stages,
            bool tapGradients, bool updatesApart);

} // namespace cleave::driver

#endif // CLEAVE_TOOLS_STAGES_H
