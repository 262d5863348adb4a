// Counts the operations and collectives of one step of a program.

#include "ExplainCollectives.h"

#include "cleave/Dialect/NN/IR/Ports.h"
#include "cleave/Interfaces/StageAttrs.h"
#include "cleave/PipelineSchedule/Replay.h"
#include "cleave/Target/Schedule.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <functional>

using namespace cleave;
using mlir::failed;
using mlir::failure;
using mlir::FailureOr;
using mlir::ModuleOp;

// If there are more ranks than this, groups of ranks with equal entries are
// listed instead of single ranks.
static constexpr int64_t kListedRanks = 16;

static Step stepOf(const program::Program &program, int64_t microbatches,
                   uint32_t rankClass) {
  Step host;
  const program::Action *lossGrad = program.findAction("loss_grad", rankClass);
  const program::Action *update = program.findAction("update", rankClass);
  // In a pipeline, @loss_grad runs all microbatches of a step; the inputs of
  // each microbatch are loaded before, by separate actions.
  bool pipelined = !program.rankClass.empty();
  for (int64_t k = 0; pipelined && k < microbatches; ++k)
    if (auto *load = program.findAction(program::loadAction(k), rankClass))
      host.push_back({load, 1});
  if (lossGrad)
    host.push_back({lossGrad, pipelined ? 1 : microbatches});
  if (update)
    host.push_back({update, 1});
  if (host.empty())
    for (const program::Action &action : program.actions)
      if (action.rankClass == rankClass && !action.isOnlyCalled())
        host.push_back({&action, 1});
  Step step;
  std::map<const program::Action *, size_t> called;
  // Adds an action, those that it calls, and the bodies of its loops.
  std::function<void(const program::Action &, int64_t)> add =
      [&](const program::Action &action, int64_t times) {
        auto [entry, isNew] = called.try_emplace(&action, step.size());
        if (isNew)
          step.push_back({&action, 0});
        step[entry->second].second += times;
        for (const program::Command &command : action.commands)
          if (auto *call = std::get_if<program::Call>(&command.op))
            add(program.actions[call->action], times);
          else if (auto *repeat = std::get_if<program::Repeat>(&command.op))
            add(program.actions[repeat->action], times * repeat->trips);
      };
  for (auto [action, times] : host)
    add(*action, times);
  return step;
}

static const char *nameOf(program::Activation activation) {
  constexpr const char *names[] = {"", "gelu_tanh", "gelu_erf", "relu", "silu"};
  return names[static_cast<int>(activation)];
}

/// Returns a description of a library call without its operands, such as "gemm
/// 768x288x96 f32 bias"; empty for other commands.
static std::string libraryCall(const program::Command &command) {
  std::string name;
  llvm::raw_string_ostream out(name);
  if (auto *gemm = std::get_if<program::Gemm>(&command.op)) {
    out << "gemm ";
    for (int64_t size : gemm->batch)
      out << size << "x";
    out << gemm->m << "x" << gemm->n << "x" << gemm->k << " "
        << program::nameOf(gemm->dtype);
    if (gemm->bias.arena >= 0)
      out << " bias";
    if (gemm->accumulate)
      out << " accumulate";
    if (gemm->activation != program::Activation::None)
      out << " " << nameOf(gemm->activation)
          << (gemm->derivativeAt.present() ? "_grad" : "");
    if (gemm->sums.present())
      out << " sums";
  } else if (auto *x = std::get_if<program::Attention>(&command.op)) {
    out << (x->backward ? "attention_grad " : "attention ") << x->b << "x"
        << x->n * x->g << "x" << x->qLen << "x" << x->kLen << "x" << x->d << " "
        << program::nameOf(x->dtype);
    if (x->g > 1)
      out << " kv_heads " << x->n;
    if (x->causal)
      out << " causal";
    if (x->window)
      out << " window " << x->window;
  } else if (auto *x = std::get_if<program::GroupedGemm>(&command.op)) {
    int64_t rows = 1;
    for (int64_t size : x->rows)
      rows *= size;
    out << (x->outer ? "grouped_outer " : "grouped_dot ") << rows << "x" << x->n
        << "x" << x->k << " of " << x->e << " " << program::nameOf(x->dtype);
  } else if (auto *x = std::get_if<program::Convolution>(&command.op)) {
    constexpr const char *names[] = {"conv ", "conv_input_grad ",
                                     "conv_filter_grad "};
    out << names[static_cast<int>(x->kind)] << x->samples << "x"
        << x->groups * x->channels;
    for (int64_t size : x->input)
      out << "x" << size;
    out << " by " << x->groups * x->features;
    for (int64_t size : x->kernel)
      out << "x" << size;
    out << " " << (x->narrow ? "bf16 to " : "") << program::nameOf(x->dtype);
    if (x->groups > 1)
      out << " groups " << x->groups;
  } else if (auto *x = std::get_if<program::PositionInExpert>(&command.op)) {
    out << "position_in_expert " << x->b << "x" << x->s << "x" << x->k << " of "
        << x->e;
  }
  return name;
}

FailureOr<std::vector<Footprint>>
cleave::footprintsOf(const program::Program &program, ModuleOp module,
                     const Booking &booking) {
  FailureOr<std::optional<target::PipelineSchedule>> schedule =
      target::scheduleOf(module);
  if (failed(schedule))
    return failure();
  std::vector<Footprint> footprints;
  if (!*schedule) {
    FailureOr<Footprint> footprint = footprintOf(module, booking);
    if (failed(footprint))
      return failure();
    footprints.push_back(std::move(*footprint));
    return footprints;
  }
  for (auto [rank, stages] : llvm::enumerate((*schedule)->table.stagesOfRank)) {
    std::vector<RankArena> arenas;
    for (const program::Arena &arena : program.arenas) {
      if (arena.rankClass >= 0 && arena.rankClass != int64_t(rank))
        continue;
      RankArena &own = arenas.emplace_back();
      own.name = arena.name;
      own.bytes = arena.size;
      if (llvm::StringRef(arena.name).starts_with("gathered."))
        own.holds = RankArena::Gathered;
      else if (arena.lifespan == program::Lifespan::Slots ||
               llvm::StringRef(arena.name).ends_with(kReducedSlot))
        own.holds = RankArena::Activations;
      else if (llvm::StringRef(arena.name).starts_with("slots."))
        own.holds = RankArena::Inputs;
      else if (llvm::StringRef(arena.name).starts_with("versions.")) {
        own.holds = RankArena::Versions;
        own.count = pipeline::weightVersions((*schedule)->table)[rank];
      }
    }
    FailureOr<Footprint> footprint = footprintOfStages(
        module, llvm::SmallVector<int64_t>(stages.begin(), stages.end()),
        arenas, booking);
    if (failed(footprint))
      return failure();
    footprints.push_back(std::move(*footprint));
  }
  return footprints;
}

/// Returns times for a simulation in which an action takes one unit of time per
/// floating-point operation.
static pipeline::Times flopsOf(const program::Program &program, int stages) {
  pipeline::Times times = pipeline::Times::uniform(stages, 0, 0, 0);
  for (const program::Action &action : program.actions) {
    // .NAME.STAGE
    llvm::StringRef name = action.name;
    int stage;
    if (!name.consume_front(".") ||
        name.rsplit('.').second.getAsInteger(10, stage))
      continue;
    double flops = 0;
    for (const program::Command &command : action.commands)
      flops += command.flops;
    pipeline::StageTimes &own = times.stage[stage];
    for (auto [kind, time] : {std::pair("F", &own.f), std::pair("I", &own.i),
                              std::pair("W", &own.w), std::pair("B", &own.b)})
      if (name.rsplit('.').first == kind)
        *time = flops;
  }
  for (pipeline::StageTimes &own : times.stage)
    own.b = std::max(own.b, own.i + own.w);
  return times;
}

static FailureOr<PipelineCost>
pipelineOf(ModuleOp module, const program::Program &program,
           const target::PipelineSchedule &schedule) {
  const pipeline::Table &table = schedule.table;
  pipeline::Result<pipeline::Replay> replay = pipeline::replay(table);
  if (!replay)
    return module.emitError() << replay.error();
  pipeline::Result<double> inARow = pipeline::stepWithoutBarrier(table);
  if (!inARow)
    return module.emitError() << inARow.error();
  pipeline::Result<pipeline::Replay> weighed =
      pipeline::replay(table, flopsOf(program, table.stages));
  if (!weighed)
    return module.emitError() << weighed.error();
  PipelineCost cost;
  if (weighed->makespan > 0)
    cost.bubbleByFlops = weighed->bubbleFraction;
  cost.stages = table.stages;
  cost.schedule = table.schedule;
  cost.axis = schedule.axis;
  cost.bubbleFraction = replay->bubbleFraction;
  cost.bubbleOfIdeal = replay->bubbleOfIdeal;
  if (!table.asynchronous) // else there is no norm
    cost.normFraction = 1 - *inARow / replay->makespan;
  cost.stagesOfRank = table.stagesOfRank;
  cost.peakInFlight.clear();
  for (const pipeline::RankReplay &rank : replay->rank)
    cost.peakInFlight.push_back(rank.peak);
  return cost;
}

/// Sets the batch size and the sequence length in `result` from the shapes of
/// the program's inputs.
static void noteSamples(const program::Program &program, Explanation &result) {
  // A program without training may compute any function of its arguments, so
  // only its tokens are known to have a batch dimension.
  bool trains = program.findAction("loss_grad");
  for (const program::Boundary &entry : program.boundary) {
    std::optional<nn::Role> role = nn::symbolizeRole(entry.role);
    bool data =
        role == nn::Role::Tokens ||
        (trains && nn::isOneOf(role, {nn::Role::Input, nn::Role::Labels}));
    // Other inputs need not have a batch dimension, so if there are tokens,
    // they determine the batch size.
    if (!data || entry.localShape.empty() ||
        (result.batch && role != nn::Role::Tokens))
      continue;
    result.batch = entry.globalShape[0] * result.microbatches;
    result.perRankMicrobatch = entry.localShape[0];
    if (role == nn::Role::Tokens && entry.globalShape.size() > 1)
      result.sequence = entry.globalShape[1];
  }
}

static std::vector<std::pair<std::string, int64_t>>
mostFrequentFirst(const std::map<std::string, int64_t> &counts) {
  std::vector<std::pair<std::string, int64_t>> list(counts.begin(),
                                                    counts.end());
  llvm::stable_sort(
      list, [](const auto &x, const auto &y) { return x.second > y.second; });
  return list;
}

FailureOr<Explanation> cleave::explain(const program::Program &program,
                                       ModuleOp module,
                                       std::vector<Footprint> memory,
                                       int64_t microbatches,
                                       const Cluster &cluster) {
  Explanation result;
  FailureOr<std::optional<target::PipelineSchedule>> schedule =
      target::scheduleOf(module);
  if (failed(schedule))
    return failure();
  if (*schedule) {
    FailureOr<PipelineCost> cost = pipelineOf(module, program, **schedule);
    if (failed(cost))
      return failure();
    result.pipeline = std::move(*cost);
  }
  for (const program::MeshAxis &axis : program.mesh)
    result.mesh.push_back({axis.name, axis.size});
  result.ranks = program.numRanks();
  result.microbatches = microbatches;
  result.memory = std::move(memory);
  noteSamples(program, result);
  std::map<std::string, int64_t> launches, calls;
  std::vector<Step> steps;
  std::vector<int64_t> flops, attentionFlops;
  for (size_t rankClass = 0; rankClass < result.memory.size(); ++rankClass) {
    steps.push_back(stepOf(program, microbatches, rankClass));
    int64_t &sum = flops.emplace_back(0);
    int64_t &attention = attentionFlops.emplace_back(0);
    for (auto [action, times] : steps.back())
      for (const program::Command &command : action->commands) {
        // A loop has the FLOPs of its body, which is an entry of its own.
        if (!std::holds_alternative<program::Repeat>(command.op))
          sum += times * command.flops;
        if (std::holds_alternative<program::Attention>(command.op))
          attention += times * command.flops;
        if (auto *launch = std::get_if<program::Launch>(&command.op))
          launches[program.kernels[launch->kernel].symbol] += times;
        else if (std::string name = libraryCall(command); !name.empty())
          calls[name] += times;
      }
  }
  result.kernels = mostFrequentFirst(launches);
  result.libraryCalls = mostFrequentFirst(calls);
  result.experts = expertLoadsOf(program, module);
  FailureOr<std::vector<Explanation::Overlap>> overlap = overlapsOf(
      module, program, steps, *schedule ? &**schedule : nullptr, cluster);
  if (failed(overlap))
    return failure();
  result.overlap = std::move(*overlap);
  result.cluster = cluster.name;
  auto paddings = paddingsOf(module);
  Exchanges exchanges;
  for (int64_t rank = 0; rank < result.ranks; ++rank) {
    int64_t rankClass = program.classOf(rank);
    RankCost cost = {{rank},
                     flops[rankClass],
                     attentionFlops[rankClass],
                     collectivesOf(program, paddings, steps[rankClass], cluster,
                                   rank, exchanges),
                     rankClass};
    if (!result.overlap.empty())
      hideOverlapped(cost.collectives, result.overlap[rankClass]);
    auto alike = llvm::find_if(result.perRank, [&](const RankCost &other) {
      return other.rankClass == cost.rankClass &&
             other.collectives == cost.collectives;
    });
    if (result.ranks > kListedRanks && alike != result.perRank.end())
      alike->members.push_back(rank);
    else
      result.perRank.push_back(std::move(cost));
  }
  return result;
}
