// Models the time of a step with overlap, for the machine of a cluster.toml.
// Without a pipeline it sums the times of a rank's actions that rt-overlap
// recorded; for a pipeline it simulates the schedule, including messages
// between stages.

#include "ExplainOverlap.h"
#include "ExplainTraffic.h"

#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/PipelineSchedule/Replay.h"
#include "cleave/exchange.h"

#include <algorithm>

using namespace cleave;
using mlir::ModuleOp;
using Overlap = Explanation::Overlap;

/// Returns the times that rt-overlap recorded on a function, or nullopt if
/// rt-overlap did not run.
static std::optional<Overlap> notedOn(ModuleOp module, llvm::StringRef name) {
  auto func = module.lookupSymbol<mlir::func::FuncOp>(name);
  auto seconds = func ? func->getAttrOfType<mlir::ArrayAttr>(rt::kOverlapAttr)
                      : mlir::ArrayAttr();
  if (!seconds)
    return std::nullopt;
  auto number = [&](unsigned i) {
    return llvm::cast<mlir::FloatAttr>(seconds[i]).getValueAsDouble();
  };
  Overlap overlap;
  overlap.compute = number(0);
  overlap.communication = number(1);
  overlap.exposed = number(2);
  return overlap;
}

/// Returns the seconds of the actions F, I, W and B of every stage, and of the
/// messages that each stage receives.
static pipeline::Times timesOf(ModuleOp module, const program::Program &program,
                               const std::vector<Step> &steps, int stages,
                               const Cluster &cluster) {
  pipeline::Times times = pipeline::Times::uniform(stages, 0, 0, 0);
  for (int stage = 0; stage < stages; ++stage) {
    pipeline::StageTimes &own = times.stage[stage];
    for (auto [kind, time] : {std::pair("F.", &own.f), std::pair("I.", &own.i),
                              std::pair("W.", &own.w), std::pair("B.", &own.b)})
      if (auto overlap = notedOn(module, kind + std::to_string(stage)))
        *time = overlap->compute + overlap->exposed;
  }
  times.fromBefore.assign(stages, 0);
  times.fromEnd.assign(stages, 0);
  for (const Step &step : steps)
    for (auto [action, count] : step) {
      // Messages with equal labels transfer several values of the same
      // microbatch at the same time, so the latency counts only once.
      std::map<std::string, double> messages;
      for (const program::Command &command : action->commands) {
        auto *message = std::get_if<program::Collective>(&command.op);
        if (!message || message->kind != program::CollectiveKind::SendRecv)
          continue;
        const LinkClass &link = cluster.link(linkOf(program, *message));
        int64_t bytes = trafficOf(*message, 2, /*member=*/1).received;
        double &seconds = messages[program.strings[command.source]];
        seconds += seconds == 0 ? secondsOf(link, bytes, 2)
                                : bytes / link.bytesPerSecond + link.message;
      }
      for (auto [label, seconds] : messages) {
        auto parsed = pipeline::parseAction(label);
        if (!parsed || !pipeline::isReceive(parsed->kind) ||
            parsed->stage >= stages)
          continue;
        std::vector<double> &into = parsed->kind == pipeline::ActionKind::RecvF
                                        ? times.fromBefore
                                        : times.fromEnd;
        into[parsed->stage] = std::max(into[parsed->stage], seconds);
      }
    }
  return times;
}

/// Returns the seconds of the collectives between stages or over all stages.
/// They are in the ranks' command lists, between the calls of actions, so no
/// computation overlaps them. `action` is such a list.
static double betweenActions(const program::Program &program,
                             const program::Action &action,
                             const Cluster &cluster) {
  double seconds = 0;
  int64_t rank = 0; // the first of the class
  while (program.classOf(rank) != action.rankClass)
    ++rank;
  std::vector<int64_t> at = coordinatesOf(program, rank);
  for (const program::Command &command : action.commands) {
    auto *collective = std::get_if<program::Collective>(&command.op);
    if (!collective || collective->kind == program::CollectiveKind::SendRecv)
      continue;
    int64_t size = program::positionsOn(collective->group),
            member = program::positionOn(collective->group, program.mesh, at);
    if (const auto &some = collective->positions; !some.empty()) {
      size = some.size();
      member = llvm::find(some, member) - some.begin();
    }
    Traffic traffic;
    if (collective->kind == program::CollectiveKind::Exchange)
      traffic = exchangeTraffic(program, *collective)[rank];
    else if (collective->kind == program::CollectiveKind::AllToAllV)
      traffic = rowTraffic(program, *collective, rank);
    else
      traffic = trafficOf(*collective, size, member);
    seconds += secondsOf(cluster.link(linkOf(program, *collective)),
                         traffic.sent, size);
  }
  return seconds;
}

mlir::FailureOr<std::vector<Overlap>>
cleave::overlapsOf(ModuleOp module, const program::Program &program,
                   const std::vector<Step> &steps,
                   const target::PipelineSchedule *schedule,
                   const Cluster &cluster) {
  std::vector<Overlap> overlaps;
  for (const Step &step : steps) {
    Overlap &sum = overlaps.emplace_back();
    bool isKnown = false;
    for (auto [action, times] : step) {
      llvm::StringRef name = action->name;
      if (schedule && !name.consume_front(".")) { // a list of calls
        double seconds =
            double(times) * betweenActions(program, *action, cluster);
        sum.communication += seconds;
        sum.exposed += seconds;
        continue;
      }
      std::optional<Overlap> one = notedOn(module, name);
      if (!one)
        continue;
      isKnown = true;
      sum.compute += double(times) * one->compute;
      sum.communication += double(times) * one->communication;
      sum.exposed += double(times) * one->exposed;
    }
    if (!isKnown)
      return std::vector<Overlap>();
  }
  if (!schedule)
    return overlaps;
  pipeline::Times times =
      timesOf(module, program, steps, schedule->table.stages, cluster);
  auto replay = pipeline::replay(schedule->table, times);
  if (!replay)
    return module.emitError() << replay.error();
  for (auto [rank, sum] : llvm::zip_equal(replay->rank, overlaps)) {
    sum.messages = rank.messages;
    sum.messagesExposed = rank.waits;
    sum.communication += rank.messages;
    sum.exposed += rank.waits;
    sum.idle = rank.makespanIdle - rank.waits;
  }
  return overlaps;
}
