// Adds the collectives of data parallelism to the schedule of a pipeline, as
// actions: UNSHARD gathers the parameters of a stage, RESHARD frees the
// gathered parameters, REDUCE_GRAD reduces gradients.

#ifndef CLEAVE_COMPILER_STAGESHARDS_H
#define CLEAVE_COMPILER_STAGESHARDS_H

#include "cleave/Config/Load.h"
#include "cleave/PipelineSchedule/Table.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace cleave::compiler {

// Decides which stages gather parameters and reduce gradients as actions of the
// schedule, and adds these actions to the schedule once the stages are
// partitioned.
class StageShards {
public:
  // `mesh` is the mesh of one stage.
  StageShards(const pipeline::Table &table, const Config &config,
              const Mesh &mesh);

  // Returns the axes over which UNSHARD gathers the stage's parameters. If
  // empty, each action gathers the parameters that it reads.
  std::vector<std::string> gatheredAxes(int stage) const;
  // Returns whether REDUCE_GRAD reduces the stage's gradients; otherwise
  // @update reduces them.
  bool reduces(int stage) const { return wanted[stage].reduce; }

  // Records which of these actions the stage really has. Must be called for
  // each stage after it is partitioned; `actions` is the module with the
  // functions of the stage's actions. Emits an error if the user's schedule has
  // a REDUCE_GRAD for a single microbatch, but the stage accumulates gradients
  // over microbatches before it reduces them.
  mlir::LogicalResult note(int stage, mlir::ModuleOp actions);

  // Returns the schedule with UNSHARD, RESHARD and REDUCE_GRAD added. A
  // schedule that already has such actions, or that the user provided, is
  // returned unchanged.
  mlir::FailureOr<pipeline::Table> place(mlir::MLIRContext *context) const;

private:
  const pipeline::Table &table;
  std::vector<std::string> axes; // UNSHARD gathers parameters over these
  bool isFixed = false;
  pipeline::ShardActions options;
  std::vector<pipeline::ShardActions::Stage> wanted;
};

} // namespace cleave::compiler

#endif // CLEAVE_COMPILER_STAGESHARDS_H
