// The phases of a model that is cut into pipeline stages.

#include "PipelineModel.h"

#include "CompileModel.h"
#include "PlanWarnings.h"

#include "cleave/Actions/Passes.h"
#include "cleave/Check/Check.h"
#include "cleave/Compiler/StageShards.h"
#include "cleave/Dialect/Dist/IR/Sharding.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/BoundaryAttrs.h"
#include "cleave/Interfaces/StageAttrs.h"
#include "cleave/Pipeline/Verify.h"
#include "cleave/Target/Target.h"
#include "cleave/io/Pattern.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"

#include <limits>
#include <map>
#include <set>

using namespace mlir;

namespace cleave::driver {

bool isPipelined(const Config &config, const Mesh &mesh) {
  return config.parallel.pipeline.enabled &&
         mesh.size(config.parallel.pipeline.axis) > 1;
}

/// Of a table that somebody wrote: what emission proves of every program,
/// before the model is compiled.
static void refuseUnlessProved(const pipeline::Table &table,
                               const std::string &path) {
  auto lowered = pipeline::lower(table);
  if (!lowered)
    throw Failure(BadUsage, path + ": " + lowered.error());
  std::vector<std::string> lines;
  for (const pipeline::Finding &finding : pipeline::verify(*lowered))
    lines.push_back(path + ": rule " + finding.rule + ": " + finding.message);
  if (!lines.empty())
    throw Failure(BadUsage, lines);
}

target::PipelineSchedule makeSchedule(const Config &config, const Mesh &mesh) {
  const PipelineConfig &asked = config.parallel.pipeline;
  target::PipelineSchedule schedule;
  schedule.axis = asked.axis;
  for (auto [place, axis] : llvm::enumerate(mesh.axes))
    if (axis.first == asked.axis)
      schedule.position = place;
  int64_t span = mesh.ranks();
  for (int64_t place = 0; place < schedule.position; ++place)
    span /= mesh.axes[place].second;
  int64_t perNode = ranksPerNode(config);
  schedule.link = perNode && perNode % span != 0 ? "inter" : "intra";

  int64_t ranks = mesh.size(asked.axis);
  auto fail = [](const std::string &why) { throw Failure(BadUsage, why); };
  if (asked.schedule == "custom" && asked.table.empty())
    fail("parallel.pipeline.schedule = \"custom\" needs a file: set "
         "parallel.pipeline.table");
  if (asked.schedule != "custom" && !asked.table.empty())
    fail("parallel.pipeline.table is read by schedule = \"custom\" alone; "
         "parallel.pipeline.schedule is \"" +
         asked.schedule + "\"");
  int64_t most = std::max(asked.chunks, config.train.microbatches);
  if (most > std::numeric_limits<int>::max())
    fail("parallel.pipeline.chunks and train.microbatches: a schedule cannot "
         "have " +
         std::to_string(most));
  auto table =
      asked.schedule == "custom"
          ? pipeline::readTable(asked.table)
          : pipeline::generate({asked.schedule, int(ranks), int(asked.chunks),
                                int(config.train.microbatches)});
  if (!table)
    fail(table.error());
  if (table->ranks != ranks)
    fail(asked.table + ": has " + std::to_string(table->ranks) +
         " ranks, but mesh." + asked.axis + " = " + std::to_string(ranks));
  if (table->microbatches != config.train.microbatches)
    fail(asked.table + ": has " + std::to_string(table->microbatches) +
         " microbatches, but train.microbatches = " +
         std::to_string(config.train.microbatches));
  schedule.table = std::move(*table);
  if (asked.schedule == "custom")
    refuseUnlessProved(schedule.table, asked.table);
  // Ranks that share a stage add up its gradients at the end of the step; data
  // ranks do so after them, in @update.
  for (auto &list : schedule.table.actions)
    llvm::erase_if(list, [&](const pipeline::Action &action) {
      return action.kind == pipeline::ActionKind::ReduceGrad &&
             schedule.table.ranksOfStage(action.stage).size() > 1;
    });
  return schedule;
}

void admitAsynchronous(ModuleOp model, const Config &config,
                       const pipeline::Table &table) {
  std::string name = "parallel.pipeline.schedule = \"" + table.schedule + "\"";
  if (config.train.clipNorm != 0)
    throw Failure(BadUsage,
                  name + " updates each stage by itself, so there is no norm "
                         "of all gradients to clip; set train.clip_norm = 0");
  if (config.parallel.expert.biasUpdate > 0)
    throw Failure(BadUsage,
                  name + " updates after each microbatch, but "
                         "parallel.expert.bias_update moves biases by the "
                         "loads of a whole step; set it to 0");
  if (config.train.onNan == "skip")
    throw Failure(BadUsage,
                  name + " updates each stage by itself, so no stage knows "
                         "what others found; train.on_nan = \"skip\" is not "
                         "possible");
  std::vector<int> kept = pipeline::weightVersions(table);
  Diagnostics diagnostics(*model.getContext());
  emitWarning(model.getLoc())
      << name << " changes the mathematics: each of the " << table.microbatches
      << " microbatches of a step updates the weights by its own mean "
         "gradient, taken at weights up to "
      << *llvm::max_element(kept) - 1 << " updates old";
}

namespace {

/// What stages have in common: one sharding for a name.
class Shared {
public:
  /// Asks for what earlier stages have decided.
  void pin(ModuleOp stage) {
    for (auto func : stage.getOps<func::FuncOp>()) {
      BoundaryAttrs boundary(func);
      for (unsigned i = 0; i < func.getNumArguments(); ++i)
        if (auto sharding = known(func.getArgAttrDict(i)))
          boundary.setArgument(i, dist::kShardingAttrName, sharding);
      for (unsigned i = 0; i < func.getNumResults(); ++i)
        if (auto sharding = known(func.getResultAttrDict(i)))
          boundary.setResult(i, dist::kShardingAttrName, sharding);
      boundary.apply();
    }
  }

  /// As overrides: how earlier stages lie what this one would lay otherwise.
  std::vector<ShardConfig> conflicts(ModuleOp stage,
                                     const std::vector<std::string> &sharded) {
    std::vector<ShardConfig> overrides;
    std::set<std::string> seen;
    for (auto func : stage.getOps<func::FuncOp>())
      for (unsigned i = 0; i < func.getNumArguments(); ++i) {
        DictionaryAttr attrs = func.getArgAttrDict(i);
        std::string key = keyOf(attrs);
        auto found = entries.find(key);
        if (!StringRef(key).starts_with("parameter ") ||
            found == entries.end() || !found->second.sharding ||
            attrs.get(dist::kShardingAttrName) == found->second.sharding ||
            !seen.insert(key).second)
          continue;
        ShardConfig &shard = overrides.emplace_back();
        shard.match =
            escapePattern(StringRef(key).drop_front(strlen("parameter ")));
        for (dist::DimShardingAttr dim : found->second.sharding.getDims())
          shard.dims.push_back(withoutSharded(dim, sharded));
      }
    return overrides;
  }

  /// Keeps what was decided; refuses another decision than before.
  void note(ModuleOp stage) {
    for (auto func : stage.getOps<func::FuncOp>()) {
      for (unsigned i = 0; i < func.getNumArguments(); ++i)
        note(func, func.getArgumentTypes()[i], func.getArgAttrDict(i));
      for (unsigned i = 0; i < func.getNumResults(); ++i)
        note(func, func.getResultTypes()[i], func.getResultAttrDict(i));
    }
  }

private:
  struct Entry {
    Type type;
    dist::ShardingAttr sharding;
    /// How it lies inside the stages, where it crosses in tiles.
    dist::ShardingAttr inside;
  };

  static std::string keyOf(DictionaryAttr attrs) {
    auto text = [&](StringRef key) {
      auto value = attrs ? attrs.getAs<StringAttr>(key) : nullptr;
      return value ? value.str() : std::string();
    };
    return text(nn::kRoleAttr) + " " + text(nn::kNameAttr);
  }

  /// The axes of a dimension but those that ZeRO adds again.
  static std::vector<std::string>
  withoutSharded(dist::DimShardingAttr dim,
                 const std::vector<std::string> &sharded) {
    std::vector<std::string> names;
    for (dist::AxisRefAttr axis : dim.getAxes()) {
      StringRef name = axis.getName().getValue();
      if (llvm::is_contained(sharded, name))
        continue;
      names.push_back(name.str());
      if (!axis.isWhole())
        names.back() += ":(" + std::to_string(axis.getPre()) + ")" +
                        std::to_string(axis.getSize());
    }
    return names;
  }

  static bool isHandedOver(StringRef key) {
    return key.starts_with("activation ") || key.starts_with("cotangent ");
  }

  dist::ShardingAttr known(DictionaryAttr attrs) {
    std::string key = keyOf(attrs);
    if (!isHandedOver(key))
      return {};
    auto found = entries.find(key);
    if (found == entries.end() && StringRef(key).starts_with("cotangent ")) {
      // It lies as the activation does.
      StringRef name = StringRef(key).drop_front(strlen("cotangent "));
      name.consume_back(".grad");
      found = entries.find(("activation " + name).str());
    }
    if (found == entries.end())
      return {};
    const Entry &entry = found->second;
    return entry.inside ? entry.inside : entry.sharding;
  }

  void note(func::FuncOp func, Type type, DictionaryAttr attrs) {
    std::string key = keyOf(attrs);
    if (!isHandedOver(key) && !StringRef(key).starts_with("parameter ") &&
        !StringRef(key).starts_with("state "))
      return;
    auto sharding = attrs.getAs<dist::ShardingAttr>(dist::kShardingAttrName);
    auto inside = attrs.getAs<dist::ShardingAttr>(kInsideAttr);
    auto [entry, isNew] =
        entries.try_emplace(key, Entry{type, sharding, inside});
    if (isNew ||
        (entry->second.type == type && entry->second.sharding == sharding))
      return;
    std::string text;
    llvm::raw_string_ostream out(text);
    out << key
        << " lies in different ways on two stages: " << entry->second.type
        << " with " << entry->second.sharding << ", and " << type << " with "
        << sharding
        << "; pin it with [[shard]], or cut elsewhere "
           "(parallel.pipeline.stages)";
    throw Failure(BadUsage, text);
  }

  std::map<std::string, Entry> entries;
};

} // namespace

/// Moves the functions of a stage into `all`, as NAME.STAGE.
static void moveInto(ModuleOp all, ModuleOp stage, int64_t index) {
  Builder b(all);
  bool first = index == 0;
  for (Operation &op : llvm::make_early_inc_range(*stage.getBody())) {
    auto func = dyn_cast<func::FuncOp>(op);
    if (!func) {
      if (first) // the mesh, the same for all
        op.moveBefore(all.getBody(), all.getBody()->end());
      continue;
    }
    func.setName((func.getName() + "." + Twine(index)).str());
    func->setAttr(kStageAttr, b.getI64IntegerAttr(index));
    func->moveBefore(all.getBody(), all.getBody()->end());
  }
}

OwningOpRef<ModuleOp> buildPipeline(ModuleOp model, const Config &config,
                                    const Mesh &mesh, Purpose purpose,
                                    Taps taps,
                                    std::vector<std::string> *remarks,
                                    bool allRemarks) {
  target::PipelineSchedule schedule = makeSchedule(config, mesh);
  if (purpose != Purpose::Infer)
    runLossPhase(model, config, schedule.table.asynchronous);
  if (purpose == Purpose::Train)
    checkTraining(model, config, mesh);
  runOrderPhase(model, config, mesh);
  if (isForSteps(purpose))
    if (auto forward = model.lookupSymbol<func::FuncOp>(nn::kForwardFunc))
      forward.erase();
  bool updatesApart = schedule.table.asynchronous && purpose != Purpose::Infer;
  if (updatesApart)
    admitAsynchronous(model, config, schedule.table);
  MLIRContext *context = model.getContext();
  std::vector<OwningOpRef<ModuleOp>> stages;
  {
    Diagnostics diagnostics(*context);
    auto built = compiler::buildStages(model, config, schedule.table.stages,
                                       taps != Taps::None, updatesApart);
    if (failed(built))
      diagnostics.fail(BadUsage);
    stages = std::move(*built);
  }
  {
    Diagnostics diagnostics(*context, remarks);
    warnOfEmptyStages(stages);
  }
  // The axis stays, so that axes have the same numbers in all programs.
  Mesh inner = mesh;
  inner.axes[schedule.position].second = 1;
  StageOptions options;
  for (const auto &list : schedule.table.actions)
    for (const pipeline::Action &action : list)
      options.weightsApart |= action.kind == pipeline::ActionKind::I ||
                              action.kind == pipeline::ActionKind::W;
  bool chained = schedule.table.chunks() > 1;
  compiler::StageShards shards(schedule.table, config, inner);
  // Neighbours on one rank hand over by copies.
  pipeline::Placement placement(schedule.table);
  auto linkBehind = [&](int stage) {
    bool crosses = stage >= 0 && stage + 1 < schedule.table.stages &&
                   placement.rank[stage] != placement.rank[stage + 1];
    return crosses ? schedule.link : std::string();
  };

  OwningOpRef<ModuleOp> all(ModuleOp::create(stages.front()->getLoc()));
  (*all)->setAttrs((*stages.front())->getAttrs());
  (*all)->removeAttr(kStageAttr);
  (*all)->removeAttr("pipe.stages");
  Shared shared;
  for (auto [index, stage] : llvm::enumerate(stages)) {
    target::noteVocabulary(*stage);
    if (taps == Taps::Values)
      check::tapAllValues(*stage);
    shared.pin(*stage);
    options.previousLink = linkBehind(int(index) - 1);
    options.nextLink = linkBehind(index);
    options.gatheredAxes = shards.gatheredAxes(index);
    OwningOpRef<ModuleOp> whole;
    if (index > 0)
      whole = cast<ModuleOp>((*stage)->clone());
    runShardPhase(*stage, config, inner, remarks, allRemarks, &options);
    // A tied parameter lies on all its stages as on the first.
    if (std::vector<ShardConfig> more =
            shared.conflicts(*stage, boundaryAxes(config, inner).all());
        !more.empty()) {
      Config with = config;
      with.shard.insert(with.shard.end(), more.begin(), more.end());
      stage = std::move(whole);
      runShardPhase(*stage, with, inner, remarks, allRemarks, &options);
    }
    shared.note(*stage);
    Diagnostics diagnostics(*context, remarks);
    PassManager passes(context);
    SplitShardsPassOptions cut;
    cut.unshard = !options.gatheredAxes.empty();
    cut.reduce = shards.reduces(index);
    cut.axes = llvm::to_vector(options.gatheredAxes);
    passes.addPass(createSplitShardsPass(cut));
    SplitActionsPassOptions split;
    split.weightsApart = options.weightsApart;
    split.chained = chained;
    split.versions = updatesApart;
    passes.addPass(createSplitActionsPass(split));
    if (failed(passes.run(*stage)) || failed(shards.note(index, *stage)))
      diagnostics.fail(BadUsage);
    moveInto(*all, *stage, index);
  }
  Diagnostics diagnostics(*context);
  FailureOr<pipeline::Table> placed = shards.place(context);
  if (failed(placed))
    diagnostics.fail(BadUsage);
  schedule.table = std::move(*placed);
  target::setSchedule(*all, schedule);
  return all;
}

} // namespace cleave::driver
