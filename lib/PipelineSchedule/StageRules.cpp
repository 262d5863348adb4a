// Verifier rules for whole stages: where gradients are reduced, when parameters
// are gathered, and peak activations.

#include "Report.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace cleave::pipeline {

namespace {

// The first REDUCE_GRAD in the lists of all ranks, and the stages with
// parameters that UNSHARD gathers.
struct Sharding {
  explicit Sharding(const Program &program) {
    for (size_t rank = 0; rank < program.ranks.size(); ++rank)
      for (size_t i = 0; i < program.ranks[rank].items.size(); ++i) {
        const Action &action = program.ranks[rank].items[i].action.action;
        if (action.kind == ActionKind::ReduceGrad && !reduction)
          reduction = PassAt{static_cast<int>(rank), i};
        if (action.kind == ActionKind::Unshard ||
            action.kind == ActionKind::Reshard)
          stages.insert(action.stage);
      }
  }

  std::optional<PassAt> reduction; // if set, all gradients need one
  std::set<int> stages;            // with UNSHARD or RESHARD
};

// Checks the rules for one rank. The rank computes gradients of a stage for the
// microbatches that it runs. Either one REDUCE_GRAD reduces the gradients of
// all these microbatches, or each microbatch has its own REDUCE_GRAD.
class RankRules {
public:
  RankRules(const Program &program, const Sharding &sharding, int rank,
            Report &report)
      : program(program), items(program.ranks[rank].items), sharding(sharding),
        rank(rank), report(report) {
    for (const Item &item : items)
      if (isPass(item))
        runs[item.action.action.stage].insert(item.action.action.microbatch);
  }

  void run() {
    for (size_t i = 0; i < items.size(); ++i) {
      if (isPass(items[i]))
        readPass(i);
      else if (items[i].action.action.kind == ActionKind::ReduceGrad)
        readReduction(i);
      else
        readGather(i);
    }
    checkReduced();
    const int declared = program.ranks[rank].peak;
    if (declared >= 0 && declared != peak)
      report.add({"peak",
                  "rank " + std::to_string(rank) + " holds " +
                      std::to_string(peak) +
                      " activations at its peak, but its table's replay " +
                      std::to_string(declared),
                  {}});
  }

private:
  // The positions of actions in the rank's list, by stage and microbatch.
  // Microbatch -1 stands for an action for all microbatches.
  using Places = std::map<std::pair<int, int>, size_t>;

  static bool isPass(const Item &item) {
    return !item.isCollective() && isCompute(item.action.action.kind);
  }

  StageTraits traitsOf(int stage) const {
    return stage < static_cast<int>(program.traits.size())
               ? program.traits[stage]
               : StageTraits();
  }

  void readPass(size_t index) {
    auto [stage, kind, m] = items[index].action.action;
    bool weights = kind == ActionKind::W || kind == ActionKind::B;
    if (weights) {
      gradients.try_emplace({stage, m}, index);
      for (int of : {-1, m})
        if (auto reduced = reductions.find({stage, of});
            reduced != reductions.end()) {
          report.add("reduction", rank, index,
                     "computes gradients after " +
                         report.at({rank, reduced->second}) +
                         " has reduced them",
                     {{rank, reduced->second}});
          break;
        }
    }
    bool reads = kind != ActionKind::W || traitsOf(stage).weightsRead;
    if (reads && sharding.stages.count(stage) && !gathered.count(stage))
      report.add("shard", rank, index,
                 "reads parameters of stage " + std::to_string(stage) +
                     " that are not gathered; an UNSHARD must precede it");
    held += kind == ActionKind::F;
    peak = std::max(peak, held);
    held -= weights;
  }

  void readReduction(size_t index) {
    auto [stage, kind, m] = items[index].action.action;
    if (items[index].action.phase == Phase::Wait)
      return;
    if (!runs.count(stage) || (m >= 0 && !runs[stage].count(m))) {
      report.add("reduction", rank, index,
                 "reduces gradients that its rank does not compute");
      return;
    }
    // A gradient must not be reduced twice. So if one REDUCE_GRAD of a stage
    // reduces the gradients of all microbatches, the stage must have no other
    // REDUCE_GRAD. But one REDUCE_GRAD (like one UNSHARD) may consist of
    // several collectives.
    for (const auto &[of, before] : reductions)
      if (of.first == stage && (of.second < 0 || m < 0 || of.second == m) &&
          !(of.second == m && items[index].isCollective())) {
        report.add("reduction", rank, index,
                   "reduces again what " + report.at({rank, before}) +
                       " has reduced",
                   {{rank, before}});
        break;
      }
    reductions[{stage, m}] = index;
  }

  void readGather(size_t index) {
    auto [stage, kind, m] = items[index].action.action;
    Phase phase = items[index].action.phase;
    if (kind != ActionKind::Unshard && kind != ActionKind::Reshard)
      return;
    if (!runs.count(stage)) {
      if (phase != Phase::Wait)
        report.add("shard", rank, index,
                   "is of a stage that its rank does not compute");
      return;
    }
    if (kind == ActionKind::Unshard && phase != Phase::Start &&
        !gathered.insert(stage).second && !items[index].isCollective())
      report.add("shard", rank, index,
                 "gathers parameters that are already gathered");
    if (kind == ActionKind::Reshard && !gathered.erase(stage))
      report.add("shard", rank, index,
                 "frees parameters that are not gathered");
  }

  // If any gradients are reduced, reports for each stage the first gradient
  // that is not reduced.
  void checkReduced() {
    if (!sharding.reduction)
      return;
    std::set<int> reported;
    for (const auto &[of, index] : gradients) {
      auto [stage, m] = of;
      if (traitsOf(stage).reduces && !reductions.count({stage, -1}) &&
          !reductions.count(of) && reported.insert(stage).second)
        report.add("reduction", rank, index,
                   "computes gradients that are not reduced on its rank, as "
                   "others are by " +
                       report.at(*sharding.reduction),
                   {*sharding.reduction});
    }
  }

  const Program &program;
  const std::vector<Item> &items;
  const Sharding &sharding;
  const int rank;
  Report &report;
  std::map<int, std::set<int>> runs; // microbatches by stage
  Places gradients, reductions;
  std::set<int> gathered; // stages
  int held = 0, peak = 0;
};

} // namespace

void checkStages(const Program &program, Report &report) {
  const Sharding sharding(program);
  for (size_t rank = 0; rank < program.ranks.size(); ++rank)
    RankRules(program, sharding, static_cast<int>(rank), report).run();
}

} // namespace cleave::pipeline
