// The phases of a model that is cut into pipeline stages.

#ifndef CLEAVE_TOOLS_PIPELINEMODEL_H
#define CLEAVE_TOOLS_PIPELINEMODEL_H

#include "ImportModel.h"

#include "cleave/Target/Schedule.h"

#include <vector>

namespace cleave::driver {

// Whether the configuration cuts the model into stages on this mesh.
bool isPipelined(const Config &config, const Mesh &mesh);

// The schedule that the configuration asks for. Fails with BadUsage.
target::PipelineSchedule makeSchedule(const Config &config, const Mesh &mesh);

// The stages, each differentiated and not yet partitioned, become one module of
// the actions of all, with the schedule. Empties `stages`.
mlir::OwningOpRef<mlir::ModuleOp>
shardStages(std::vector<mlir::OwningOpRef<mlir::ModuleOp>> &stages,
            const Config &config, const Mesh &mesh,
            std::vector<std::string> *remarks = nullptr,
            bool allRemarks = false);

} // namespace cleave::driver

#endif // CLEAVE_TOOLS_PIPELINEMODEL_H
