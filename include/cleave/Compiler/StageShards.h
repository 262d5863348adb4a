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
// schedule, and puts these in the table once the stages are there.
class StageShards {
public:
  // `mesh`: that of a stage.
  StageShards(const pipeline::Table &table, const Config &config,
              const Mesh &mesh);

  // Axes over which the stage gathers parameters in UNSHARD; none: each action
  // gathers what it reads.
  std::vector<std::string> gatheredAxes(int stage) const;
  // Whether REDUCE_GRAD reduces its gradients; else @update does.
  bool reduces(int stage) const { return wanted[stage].reduce; }

  // What the stage has become: a module of its actions. An error where the
  // table cannot be kept.
  mlir::LogicalResult note(int stage, mlir::ModuleOp actions);

  // The table with the actions. One that has any of them stays as it is, as
  // does every table of one's own.
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
