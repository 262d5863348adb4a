// Adds the collectives of data parallelism to the schedule of a pipeline, as
// actions: UNSHARD (all-gather of parameters), RESHARD (release of the gathered
// parameters) and REDUCE_GRAD (reduction of gradients).

#include "cleave/Compiler/StageShards.h"

#include "cleave/Interfaces/StageAttrs.h"
#include "cleave/Support/Errors.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace cleave::compiler {

using pipeline::Action;
using pipeline::ActionKind;

/// Returns whether every rank that holds the stage has an action of this kind
/// for the stage.
static bool has(const pipeline::Table &table, int stage, ActionKind kind) {
  return llvm::all_of(table.ranksOfStage(stage), [&](int rank) {
    return llvm::any_of(table.actions[rank], [&](const Action &action) {
      return action.stage == stage && action.kind == kind;
    });
  });
}

StageShards::StageShards(const pipeline::Table &table, const Config &config,
                         const Mesh &mesh)
    : table(table) {
  const DataParallelConfig &data = config.parallel.data;
  const TensorParallelConfig &tensor = config.parallel.tensor;
  if (data.enabled && data.zero == 3)
    axes = boundaryAxes(config, mesh).sharded();
  // 3D tensor parallelism gathers parameters over its first axis once, and
  // keeps the gathered parameters for the backward pass. So UNSHARD also
  // gathers over this axis.
  if (tensor.enabled && tensor.layout == "3d" && mesh.size(tensor.axes[0]) > 1)
    axes.push_back(tensor.axes[0]);
  isFixed = config.parallel.pipeline.schedule == "custom";
  options.unshard = true;
  options.gathered = data.reshardAfterForward ? 1 : 0;
  for (int stage = 0; stage < table.stages; ++stage) {
    pipeline::ShardActions::Stage &own = wanted.emplace_back();
    // An asynchronous schedule has no UNSHARD, because it changes parameters in
    // the middle of a step. If several pipeline ranks have the stage, it has no
    // REDUCE_GRAD: they first sum its gradients among themselves, and only then
    // are these reduced over data-parallel ranks.
    own.unshard = !axes.empty() && !table.asynchronous;
    own.reduce = !table.asynchronous && table.ranksOfStage(stage).size() == 1;
    if (isFixed) {
      own.unshard &= has(table, stage, ActionKind::Unshard);
      own.reduce &= has(table, stage, ActionKind::ReduceGrad);
    }
  }
}

std::vector<std::string> StageShards::gatheredAxes(int stage) const {
  return wanted[stage].unshard ? axes : std::vector<std::string>();
}

LogicalResult StageShards::note(int stage, ModuleOp actions) {
  pipeline::ShardActions::Stage &own = wanted[stage];
  own.unshard &= bool(actions.lookupSymbol(kUnshardFunc));
  own.reduce &= bool(actions.lookupSymbol(kReduceGradFunc));
  own.weightsRead = false;
  if (auto weights = actions.lookupSymbol<func::FuncOp>(kWeightPart))
    for (unsigned i = 0; i < weights.getNumArguments(); ++i)
      own.weightsRead |=
          pipe::slotOf(weights.getArgAttrDict(i)) == kGatheredSlot;
  if (!isFixed || !own.reduce)
    return success();
  for (const auto &list : table.actions)
    for (const Action &action : list)
      if (action.stage == stage && action.kind == ActionKind::ReduceGrad &&
          action.microbatch >= 0)
        return configError(actions.getContext())
               << "schedule " << table.schedule << ": " << print(action)
               << " reduces the gradients of one microbatch, but those of "
                  "stage "
               << stage << " are added up first: write " << stage
               << "REDUCE_GRAD after its last W or B, or set "
                  "parallel.data.zero2_reduce = \"per_microbatch\" with zero = "
                  "2";
  return success();
}

FailureOr<pipeline::Table> StageShards::place(MLIRContext *context) const {
  if (isFixed)
    return table;
  pipeline::ShardActions with = options;
  with.stages = wanted;
  auto placed = withShardActions(table, with);
  if (!placed)
    return configError(context) << placed.error();
  return *placed;
}

} // namespace cleave::compiler
