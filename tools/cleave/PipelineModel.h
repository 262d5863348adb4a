// The phases of a model that is cut into pipeline stages.

#ifndef CLEAVE_TOOLS_PIPELINEMODEL_H
#define CLEAVE_TOOLS_PIPELINEMODEL_H

#include "Phases.h"

#include "cleave/Target/Schedule.h"

#include <vector>

namespace cleave::driver {

// Whether the configuration cuts the model into stages on this mesh.
bool isPipelined(const Config &config, const Mesh &mesh);

// The schedule that the configuration asks for. Fails with BadUsage.
target::PipelineSchedule makeSchedule(const Config &config, const Mesh &mesh);

// What stages give beside what a step needs, for checks.
enum class Taps { None, Gradients, Values };

// Of an asynchronous schedule: warns that it changes the mathematics. Fails
// with BadUsage where the configuration asks for what it cannot have.
void admitAsynchronous(mlir::ModuleOp model, const Config &config,
                       const pipeline::Table &table);

// A model as it was loaded becomes one module of the actions of its stages,
// with the schedule. `purpose` says which. Fails with BadUsage.
mlir::OwningOpRef<mlir::ModuleOp>
buildPipeline(mlir::ModuleOp model, const Config &config, const Mesh &mesh,
              Purpose purpose, Taps taps,
              std::vector<std::string> *remarks = nullptr,
              bool allRemarks = false);

} // namespace cleave::driver

#endif // CLEAVE_TOOLS_PIPELINEMODEL_H
