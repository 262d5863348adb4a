// UNSHARD, RESHARD and REDUCE_GRAD in the schedule of a pipeline.

#ifndef CLEAVE_COMPILER_STAGESHARDS_H
#define CLEAVE_COMPILER_STAGESHARDS_H

#include "cleave/Config/Load.h"
#include "cleave/PipelineSchedule/Table.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace cleave::compiler {

// Decides which stages gather parameters and reduce gradients as actions of the
// schedule, and adds these actions to the table once the stages are
// partitioned.
class StageShards {
public:
  // `mesh`: the mesh of one stage.
  StageShards(const pipeline::Table &table, const Config &config,
              const Mesh &mesh);

  // Axes over which the stage gathers parameters in UNSHARD; none: each action
  // gathers the parameters that it reads.
  std::vector<std::string> gatheredAxes(int stage) const;
  // Whether REDUCE_GRAD reduces the stage's gradients; else @update does.
  bool reduces(int stage) const { return wanted[stage].reduce; }

  // Takes note of a partitioned stage, a module of its actions. An error if it
  // cannot follow the table.
  mlir::LogicalResult note(int stage, mlir::ModuleOp actions);

  // The table with these actions. A table that has any of them already, or that
  // the user gave, is returned as it is.
  mlir::FailureOr<pipeline::Table> place(mlir::MLIRContext *context) const;

private:
  const pipeline::Table &table;
  std::vector<std::string> axes; // over which parameters are split
  bool isFixed = false;
  pipeline::ShardActions options;
  std::vector<pipeline::ShardActions::Stage> wanted;
};

} // namespace cleave::compiler

#endif // CLEAVE_COMPILER_STAGESHARDS_H
