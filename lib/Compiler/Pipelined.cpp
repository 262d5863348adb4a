// The compiler's phases for a model that is cut into pipeline stages.

#include "cleave/Compiler/Pipelined.h"

#include "SharedShardings.h"

#include "cleave/Actions/Passes.h"
#include "cleave/Compiler/PlanWarnings.h"
#include "cleave/Compiler/StageShards.h"
#include "cleave/Compiler/Stages.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/Pipe/IR/Pipe.h"
#include "cleave/Interfaces/StageAttrs.h"
#include "cleave/PipelineSchedule/Verify.h"
#include "cleave/Support/Errors.h"
#include "cleave/Support/Passes.h"
#include "cleave/Target/Target.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"

#include <limits>

using namespace mlir;

namespace cleave::compiler {

bool isPipelined(const Config &config, const Mesh &mesh) {
  return config.parallel.pipeline.enabled &&
         mesh.size(config.parallel.pipeline.axis) > 1;
}

/// Verifies a pipeline schedule that a user wrote, before the model is
/// compiled. All schedules are verified once more when their program is
/// emitted, but an error would then come late.
static LogicalResult refuseUnlessProved(const pipeline::Table &table,
                                        const std::string &path,
                                        MLIRContext *context) {
  auto lowered = pipeline::lower(table);
  if (!lowered)
    return configError(context) << path << ": " << lowered.error();
  std::vector<pipeline::Finding> findings = pipeline::verify(*lowered);
  for (const pipeline::Finding &finding : findings)
    configError(context) << path << ": rule " << finding.rule << ": "
                         << finding.message;
  return success(findings.empty());
}

FailureOr<target::PipelineSchedule>
makeSchedule(const Config &config, const Mesh &mesh, MLIRContext *context) {
  const PipelineConfig &asked = config.parallel.pipeline;
  target::PipelineSchedule schedule;
  schedule.axis = asked.axis;
  for (auto [place, axis] : llvm::enumerate(mesh.axes))
    if (axis.first == asked.axis)
      schedule.position = place;
  int64_t span = mesh.ranks();
  for (int64_t place = 0; place < schedule.position; ++place)
    span /= mesh.axes[place].second;
  FailureOr<int64_t> perNode = ranksPerNode(config, context);
  if (failed(perNode))
    return failure();
  schedule.link = *perNode && *perNode % span != 0 ? "inter" : "intra";

  int64_t ranks = mesh.size(asked.axis);
  auto fail = [&](const std::string &why) -> LogicalResult {
    return configError(context) << why;
  };
  if (asked.schedule == "custom" && asked.table.empty())
    return fail("parallel.pipeline.schedule = \"custom\" needs a file: set "
                "parallel.pipeline.table");
  if (asked.schedule != "custom" && !asked.table.empty())
    return fail(
        "parallel.pipeline.table is read by schedule = \"custom\" alone; "
        "parallel.pipeline.schedule is \"" +
        asked.schedule + "\"");
  int64_t most = std::max(asked.chunks, config.train.microbatches);
  if (most > std::numeric_limits<int>::max())
    return fail(
        "parallel.pipeline.chunks and train.microbatches: a schedule cannot "
        "have " +
        std::to_string(most));
  auto table =
      asked.schedule == "custom"
          ? pipeline::readTable(asked.table)
          : pipeline::generate({asked.schedule, int(ranks), int(asked.chunks),
                                int(config.train.microbatches)});
  if (!table)
    return fail(table.error());
  if (table->ranks != ranks)
    return fail(asked.table + ": has " + std::to_string(table->ranks) +
                " ranks, but mesh." + asked.axis + " = " +
                std::to_string(ranks));
  if (table->microbatches != config.train.microbatches)
    return fail(asked.table + ": has " + std::to_string(table->microbatches) +
                " microbatches, but train.microbatches = " +
                std::to_string(config.train.microbatches));
  schedule.table = std::move(*table);
  if (asked.schedule == "custom" &&
      failed(refuseUnlessProved(schedule.table, asked.table, context)))
    return failure();
  // If several pipeline ranks have the same stage, they sum its gradients at
  // the end of the step, without REDUCE_GRAD. Only after that, in @update, can
  // the gradients be summed over data-parallel ranks. So the actions
  // REDUCE_GRAD of such a stage are removed.
  for (auto &list : schedule.table.actions)
    llvm::erase_if(list, [&](const pipeline::Action &action) {
      return action.kind == pipeline::ActionKind::ReduceGrad &&
             schedule.table.ranksOfStage(action.stage).size() > 1;
    });
  return schedule;
}

LogicalResult admitAsynchronous(ModuleOp model, const Config &config,
                                const pipeline::Table &table) {
  std::string name = "parallel.pipeline.schedule = \"" + table.schedule + "\"";
  auto error = [&] { return configError(model.getContext()) << name; };
  if (config.train.clipNorm != 0)
    return error()
           << " updates each stage by itself, so there is no norm of all "
              "gradients to clip; set train.clip_norm = 0";
  if (config.parallel.expert.biasUpdate > 0)
    return error()
           << " updates after each microbatch, but "
              "parallel.expert.bias_update moves biases by the loads of "
              "a whole step; set it to 0";
  if (config.train.onNan == "skip")
    return error() << " updates each stage by itself, so no stage knows what "
                      "others found; train.on_nan = \"skip\" is not possible";
  std::vector<int> kept = pipeline::weightVersions(table);
  emitWarning(model.getLoc())
      << name << " changes the mathematics: each of the " << table.microbatches
      << " microbatches of a step updates the weights by its own mean "
         "gradient, taken at weights up to "
      << *llvm::max_element(kept) - 1 << " updates old";
  return success();
}

/// Moves the functions of a stage into `all`, as NAME.STAGE.
static void moveInto(ModuleOp all, ModuleOp stage, int64_t index) {
  Builder b(all);
  bool first = index == 0;
  for (Operation &op : llvm::make_early_inc_range(*stage.getBody())) {
    auto func = dyn_cast<func::FuncOp>(op);
    if (!func) {
      if (first) // the mesh, which all stages have
        op.moveBefore(all.getBody(), all.getBody()->end());
      continue;
    }
    func.setName((func.getName() + "." + Twine(index)).str());
    func->setAttr(kStageAttr, b.getI64IntegerAttr(index));
    func->moveBefore(all.getBody(), all.getBody()->end());
  }
}

LogicalResult cutPipeline(ModuleOp model, const Config &config,
                          const Mesh &mesh, const TrainPhaseOptions &options) {
  FailureOr<target::PipelineSchedule> schedule =
      makeSchedule(config, mesh, model.getContext());
  if (failed(schedule))
    return failure();
  const pipeline::Table &table = schedule->table;
  bool infers = options.purpose == Purpose::Infer;
  if (!infers && (failed(addLoss(model, config, table.asynchronous)) ||
                  (options.afterLoss && failed(options.afterLoss(model)))))
    return failure();
  if (failed(orderPositions(model, config, mesh, "train")))
    return failure();
  if (isForSteps(options.purpose))
    if (auto forward = model.lookupSymbol<func::FuncOp>(nn::kForwardFunc))
      forward.erase();
  bool updatesApart = table.asynchronous && !infers;
  if (updatesApart && failed(admitAsynchronous(model, config, table)))
    return failure();
  return cutIntoStages(model, config, table.stages, options.tapGradients,
                       updatesApart);
}

namespace {

/// Partitions the pipeline stages, one after the other, and cuts their
/// functions into the actions of the schedule (forward pass, backward pass,
/// ...).
class StagePartitioner {
public:
  StagePartitioner(const target::PipelineSchedule &schedule,
                   const Config &config, const Mesh &mesh,
                   const ShardPhaseOptions &asked)
      : schedule(schedule), config(config), asked(asked), inner(mesh),
        placement(schedule.table) {
    // A stage is partitioned over the ranks that have the same index on the
    // pipeline axis. The axis stays in their mesh, with size 1, so that every
    // axis has the same position as in the whole mesh.
    inner.axes[schedule.position].second = 1;
    shards.emplace(schedule.table, config, inner);
    for (const auto &list : schedule.table.actions)
      for (const pipeline::Action &action : list)
        options.weightsApart |= action.kind == pipeline::ActionKind::I ||
                                action.kind == pipeline::ActionKind::W;
  }

  LogicalResult run(OwningOpRef<ModuleOp> &stage, int index) {
    target::noteVocabulary(*stage);
    if (asked.prepareStage)
      asked.prepareStage(*stage);
    shared.pin(*stage);
    options.index = index;
    options.previousLink = linkAfter(index - 1);
    options.nextLink = linkAfter(index);
    options.gatheredAxes = shards->gatheredAxes(index);
    if (failed(shardAsOthers(stage, index > 0)) || failed(shared.note(*stage)))
      return failure();
    std::string phase = "shard-stage" + std::to_string(index) + "-actions";
    LogicalResult split = runPasses(*stage, phase, [&](OpPassManager &passes) {
      SplitShardsPassOptions cut;
      cut.unshard = !options.gatheredAxes.empty();
      cut.reduce = shards->reduces(index);
      cut.axes = llvm::to_vector(options.gatheredAxes);
      passes.addPass(createSplitShardsPass(cut));
      SplitActionsPassOptions split;
      split.weightsApart = options.weightsApart;
      split.chained = schedule.table.chunks() > 1;
      split.versions = schedule.table.asynchronous && !asked.infers;
      passes.addPass(createSplitActionsPass(split));
    });
    return failed(split) ? failure() : shards->note(index, *stage);
  }

  FailureOr<pipeline::Table> place(MLIRContext *context) const {
    return shards->place(context);
  }

private:
  /// Returns the class of the links ("intra" within a node, "inter" between
  /// nodes, ...) over which a stage sends values to the next stage. Returns ""
  /// if the next stage is on the same rank, so that values are only copied.
  std::string linkAfter(int stage) const {
    bool crosses = stage >= 0 && stage + 1 < schedule.table.stages &&
                   placement.rank[stage] != placement.rank[stage + 1];
    return crosses ? schedule.link : std::string();
  }

  /// Partitions the stage. A parameter that several stages share (a tied
  /// parameter) gets the sharding that it has in the first of these stages. If
  /// the partitioner chose a different one, it runs again with this sharding as
  /// a constraint.
  LogicalResult shardAsOthers(OwningOpRef<ModuleOp> &stage, bool hasEarlier) {
    MLIRContext &context = *stage->getContext();
    OwningOpRef<ModuleOp> whole;
    if (hasEarlier)
      whole = cast<ModuleOp>((*stage)->clone());
    std::vector<ShardConfig> more;
    {
      HeldMessages held(context);
      if (failed(shard(*stage, config, inner, asked.allRemarks, &options)))
        return failure();
      more = shared.conflicts(*stage, boundaryAxes(config, inner).all());
      // The stage is partitioned again below, which repeats the messages.
      if (!more.empty())
        held.drop();
    }
    if (more.empty())
      return success();
    Config with = config;
    with.shard.insert(with.shard.end(), more.begin(), more.end());
    stage = std::move(whole);
    return shard(*stage, with, inner, asked.allRemarks, &options);
  }

  const target::PipelineSchedule &schedule;
  const Config &config;
  const ShardPhaseOptions &asked;
  Mesh inner;
  pipeline::Placement placement;
  std::optional<StageShards> shards;
  StageOptions options;
  SharedShardings shared;
};

} // namespace

FailureOr<OwningOpRef<ModuleOp>>
shardPipeline(ModuleOp model, const Config &config, const Mesh &mesh,
              const ShardPhaseOptions &options) {
  MLIRContext *context = model.getContext();
  FailureOr<target::PipelineSchedule> schedule =
      makeSchedule(config, mesh, context);
  if (failed(schedule))
    return failure();
  std::vector<OwningOpRef<ModuleOp>> stages = takeStages(model);
  if (int(stages.size()) != schedule->table.stages)
    return model.emitError("the model is cut into ")
           << stages.size() << " stages, but the configuration has "
           << schedule->table.stages
           << "; cut it with the same mesh and parallel.pipeline "
              "(cleave-train)";
  warnOfEmptyStages(stages);
  OwningOpRef<ModuleOp> all(ModuleOp::create(stages.front()->getLoc()));
  (*all)->setAttrs((*stages.front())->getAttrs());
  (*all)->removeAttr(kStageAttr);
  (*all)->removeAttr(pipe::kStagesAttr);
  StagePartitioner partitioner(*schedule, config, mesh, options);
  for (auto [index, stage] : llvm::enumerate(stages)) {
    if (failed(partitioner.run(stage, int(index))))
      return failure();
    moveInto(*all, *stage, index);
  }
  FailureOr<pipeline::Table> placed = partitioner.place(context);
  if (failed(placed))
    return failure();
  schedule->table = std::move(*placed);
  target::setSchedule(*all, *schedule);
  return all;
}

} // namespace cleave::compiler
