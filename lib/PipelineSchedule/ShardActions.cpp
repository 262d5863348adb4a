// Inserts UNSHARD, RESHARD and REDUCE_GRAD into a table.

#include "cleave/PipelineSchedule/Table.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

namespace cleave::pipeline {

namespace {

bool endsWeights(const Action &action) {
  return action.kind == ActionKind::W || action.kind == ActionKind::B;
}

class RankPlan {
public:
  RankPlan(const Table &table, int rank, const ShardActions &options)
      : table(table), list(table.actions[rank]), options(options) {
    for (size_t i = 0; i < list.size(); ++i) {
      if (readsGathered(list[i]))
        readers[list[i].stage].push_back(i);
      if (endsWeights(list[i]))
        lastWeights[list[i].stage] = i;
    }
  }

  std::vector<Action> run() {
    size_t most = options.gathered > 0 ? options.gathered : readers.size();
    for (size_t i = 0; i < list.size(); ++i) {
      int stage = list[i].stage;
      if (readsGathered(list[i]) && gathered.insert(stage).second) {
        if (gathered.size() > most)
          free(farthest(stage, i));
        result.push_back({stage, ActionKind::Unshard, -1});
      }
      result.push_back(list[i]);
      if (readsGathered(list[i]) && readers[stage].back() == i)
        free(stage);
      reduceAfter(i);
    }
    for (int stage : atEnd)
      result.push_back({stage, ActionKind::ReduceGrad, -1});
    return std::move(result);
  }

private:
  ShardActions::Stage ofStage(int stage) const {
    return options.stages.empty() ? ShardActions::Stage()
                                  : options.stages[stage];
  }

  bool readsGathered(const Action &action) const {
    ShardActions::Stage own = ofStage(action.stage);
    return options.unshard && own.unshard && isCompute(action.kind) &&
           (action.kind != ActionKind::W || own.weightsRead);
  }

  void free(int stage) {
    gathered.erase(stage);
    result.push_back({stage, ActionKind::Reshard, -1});
  }

  // Returns the stage, among the stages with gathered parameters except `kept`,
  // whose parameters are needed again last.
  int farthest(int kept, size_t now) const {
    int found = -1;
    size_t latest = 0;
    for (int stage : gathered) {
      if (stage == kept)
        continue;
      const std::vector<size_t> &places = readers.at(stage);
      auto next = std::upper_bound(places.begin(), places.end(), now);
      size_t at =
          next == places.end() ? std::numeric_limits<size_t>::max() : *next;
      if (found < 0 || at > latest) {
        found = stage;
        latest = at;
      }
    }
    return found;
  }

  void reduceAfter(size_t i) {
    int stage = list[i].stage;
    if (!options.reduce || !ofStage(stage).reduce || !endsWeights(list[i]))
      return;
    bool shared = table.ranksOfStage(stage).size() > 1;
    if (options.reducePerMicrobatch)
      result.push_back({stage, ActionKind::ReduceGrad, list[i].microbatch});
    else if (lastWeights[stage] == i && !shared)
      result.push_back({stage, ActionKind::ReduceGrad, -1});
    else if (lastWeights[stage] == i)
      atEnd.insert(stage);
  }

  const Table &table;
  const std::vector<Action> &list;
  const ShardActions &options;
  // For each stage, the list indices of the passes that read its parameters. W
  // may be such a pass: the W of the first stage is its whole backward pass.
  std::map<int, std::vector<size_t>> readers;
  std::map<int, size_t> lastWeights;
  std::set<int> gathered, atEnd;
  std::vector<Action> result;
};

} // namespace

Result<Table> withShardActions(const Table &table,
                               const ShardActions &options) {
  for (const std::vector<Action> &list : table.actions)
    for (const Action &action : list)
      if (!isCompute(action.kind))
        return Error{
            "schedule " + table.schedule + ": the table has " + print(action) +
            "; UNSHARD, RESHARD and REDUCE_GRAD are either all in the table or "
            "all inserted by the compiler"};
  if (options.reducePerMicrobatch)
    for (int stage = 0; stage < table.stages; ++stage)
      if (table.ranksOfStage(stage).size() > 1)
        return Error{
            "schedule " + table.schedule + ": stage " + std::to_string(stage) +
            " is on two ranks with different microbatches, so its gradients "
            "cannot be reduced for every microbatch"};
  Table result = table;
  for (int rank = 0; rank < table.ranks; ++rank)
    result.actions[rank] = RankPlan(table, rank, options).run();
  return result;
}

} // namespace cleave::pipeline
