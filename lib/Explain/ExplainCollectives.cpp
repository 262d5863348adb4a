// Lists the collectives of a step for `cleave explain`. Equal collectives share
// one line, with their padding and their exposed time.

#include "ExplainCollectives.h"
#include "ExplainTraffic.h"

#include "cleave/Dialect/Dist/IR/Padding.h"
#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/Memory/BoundaryTable.h"
#include "cleave/exchange.h"

#include "llvm/ADT/STLExtras.h"

#include <tuple>

using namespace cleave;

static const char *nameOf(program::CollectiveKind kind) {
  constexpr const char *names[] = {"all_reduce", "all_gather", "reduce_scatter",
                                   "all_to_all", "permute",    "broadcast",
                                   "exchange",   "send_recv",  "all_to_all_v"};
  static_assert(std::size(names) ==
                static_cast<size_t>(program::lastCollectiveKind) + 1);
  return names[static_cast<int>(kind)];
}

std::map<std::string, std::vector<int64_t>>
cleave::paddingsOf(mlir::ModuleOp module) {
  std::map<std::string, std::vector<int64_t>> paddings;
  for (mlir::func::FuncOp func : actionsOf(module))
    for (auto collective : func.getOps<rt::CollectiveOp>())
      paddings[func.getName().str()].push_back(dist::paddingOf(collective));
  return paddings;
}

/// Returns the command's label without the number of the microbatch, such as
/// "0SEND_F", so that the messages of all microbatches share one line.
static std::string sourceOf(const program::Program &program,
                            const program::Command &command,
                            const program::Collective &collective) {
  std::string source = program.strings[command.source];
  if (collective.kind == program::CollectiveKind::SendRecv)
    source.erase(source.find_last_not_of("0123456789") + 1);
  return source;
}

std::vector<CollectiveCost> cleave::collectivesOf(
    const program::Program &program,
    const std::map<std::string, std::vector<int64_t>> &paddings,
    const Step &step, const Cluster &cluster, int64_t rank,
    Exchanges &exchanges) {
  std::vector<CollectiveCost> costs;
  // Equal collectives are found by this key. It contains the link class,
  // because two sub-axes of one axis can have different link classes.
  std::map<std::tuple<std::string, std::vector<std::string>, std::string,
                      std::string, std::string, std::string>,
           size_t>
      known;
  for (auto [action, times] : step) {
    size_t number = 0;
    // Messages between stages are in command lists without a function, and have
    // no padding.
    auto padding = paddings.find(action->isOnlyCalled() ? action->name.substr(1)
                                                        : action->name);
    for (const program::Command &command : action->commands) {
      auto *collective = std::get_if<program::Collective>(&command.op);
      if (!collective)
        continue;
      CollectiveCost cost;
      cost.kind = nameOf(collective->kind);
      cost.purpose = program.strings[collective->purpose];
      cost.source = sourceOf(program, command, *collective);
      cost.dtype = program::nameOf(collective->dtype);
      cost.link = linkOf(program, *collective);
      for (const program::SubAxis &part : collective->group) {
        cost.axes.push_back(program.mesh[part.axis].name);
        cost.groupSize *= part.size;
      }
      int64_t member = program::positionOn(collective->group, program.mesh,
                                           coordinatesOf(program, rank));
      if (const auto &some = collective->positions; !some.empty()) {
        cost.groupSize = some.size();
        member = llvm::find(some, member) - some.begin();
      }
      Traffic traffic;
      if (collective->kind == program::CollectiveKind::Exchange) {
        std::vector<Traffic> &all = exchanges[collective];
        if (all.empty())
          all = exchangeTraffic(program, *collective);
        traffic = all[rank];
      } else if (collective->kind == program::CollectiveKind::AllToAllV) {
        traffic = rowTraffic(program, *collective, rank);
      } else {
        traffic = trafficOf(*collective, cost.groupSize, member);
      }
      // A conditional command normally does not run, so its traffic is not
      // counted.
      if (command.when.present())
        traffic = {};
      auto [entry, isNew] =
          known.try_emplace({cost.kind, cost.axes, cost.link, cost.purpose,
                             cost.source, cost.dtype},
                            costs.size());
      if (isNew)
        costs.push_back(cost);
      CollectiveCost &sum = costs[entry->second];
      sum.count += times;
      sum.payloadBytes += times * traffic.payload;
      sum.sentBytes += times * traffic.sent;
      sum.receivedBytes += times * traffic.received;
      if (padding != paddings.end())
        sum.paddingBytes += times * padding->second[number++];
      // Only the receiver of a message waits for it.
      bool isMessage = collective->kind == program::CollectiveKind::SendRecv;
      if (!isMessage || traffic.received > 0)
        sum.exposedMs += 1e3 * times *
                         secondsOf(cluster.link(cost.link),
                                   isMessage ? traffic.received : traffic.sent,
                                   cost.groupSize);
    }
  }
  return costs;
}

/// Only two totals of the exposed time are known: for messages between stages,
/// and for all other collectives. Each total is divided among its collectives
/// in proportion to their times.
void cleave::hideOverlapped(std::vector<CollectiveCost> &collectives,
                            const Explanation::Overlap &overlap) {
  double others = overlap.communication - overlap.messages,
         exposed = overlap.exposed - overlap.messagesExposed;
  for (CollectiveCost &cost : collectives) {
    bool isMessage = cost.kind == nameOf(program::CollectiveKind::SendRecv);
    double all = isMessage ? overlap.messages : others;
    if (all > 0)
      cost.exposedMs *= (isMessage ? overlap.messagesExposed : exposed) / all;
  }
}

void cleave::bookCollectives(Explanation &explanation,
                             llvm::StringRef reduceDtype) {
  for (RankCost &rank : explanation.perRank)
    for (CollectiveCost &cost : rank.collectives) {
      if (cost.purpose != "gradient" || cost.dtype != "f32" ||
          reduceDtype != "bf16")
        continue;
      cost.dtype = "bf16";
      for (int64_t *bytes : {&cost.payloadBytes, &cost.sentBytes,
                             &cost.receivedBytes, &cost.paddingBytes})
        *bytes /= 2;
    }
}
