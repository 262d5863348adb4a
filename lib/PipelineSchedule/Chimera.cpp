// The schedule Chimera (Li and Hoefler): two pipelines run over the same p
// ranks in opposite directions. Even microbatches use the first pipeline, odd
// microbatches the second; stage s is on ranks s and p - 1 - s.

#include "Generators.h"

#include <algorithm>
#include <set>

namespace cleave::pipeline {

namespace {

// A list scheduler in which forward and backward passes take one unit of time.
// Ready backward passes have priority over forward passes, and among equals the
// lowest microbatch has priority. A rank holds at most p activations.
class ListScheduler {
public:
  explicit ListScheduler(Table &table)
      : table(table), p(table.ranks), waiting(p), held(p, 0),
        forward(size(), never), backward(size(), never) {
    for (int m = 0; m < table.microbatches; ++m)
      for (int stage = 0; stage < p; ++stage)
        for (ActionKind kind : {ActionKind::F, ActionKind::B})
          waiting[rankOf(stage, m)].insert({m, stage, kind});
  }

  void run() {
    size_t left = 2 * size();
    for (int time = 0; left > 0; ++time)
      for (int rank = 0; rank < p; ++rank)
        left -= step(rank, time);
  }

private:
  static constexpr int never = 1 << 30;

  struct Entry {
    int microbatch, stage;
    ActionKind kind;
    auto operator<=>(const Entry &) const = default;
  };

  size_t size() const { return static_cast<size_t>(p) * table.microbatches; }
  size_t at(int stage, int m) const {
    return static_cast<size_t>(m) * p + stage;
  }
  int rankOf(int stage, int m) const { return m % 2 ? p - 1 - stage : stage; }

  // An action takes one unit of time, so its result can be used one unit after
  // its start.
  bool ready(const Entry &entry, int time) const {
    auto [m, stage, kind] = entry;
    if (kind == ActionKind::F)
      return stage == 0 || forward[at(stage - 1, m)] < time;
    return forward[at(stage, m)] < time &&
           (stage + 1 == p || backward[at(stage + 1, m)] < time);
  }

  bool step(int rank, int time) {
    auto pick = waiting[rank].end();
    for (auto entry = waiting[rank].begin(); entry != waiting[rank].end();
         ++entry) {
      bool gradient = entry->kind == ActionKind::B;
      if (pick != waiting[rank].end() && !gradient)
        continue; // a forward pass of a later microbatch
      // Passes of microbatches that are numbered this far beyond the last
      // microbatch that has begun cannot be ready.
      if (entry->microbatch > lastBegun + 2 * p)
        break;
      if (!ready(*entry, time) || (!gradient && held[rank] >= p))
        continue;
      pick = entry;
      if (gradient)
        break;
    }
    if (pick == waiting[rank].end())
      return false;
    auto [m, stage, kind] = *pick;
    waiting[rank].erase(pick);
    lastBegun = std::max(lastBegun, m);
    table.actions[rank].push_back({stage, kind, m});
    (kind == ActionKind::F ? forward : backward)[at(stage, m)] = time;
    held[rank] += kind == ActionKind::F ? 1 : -1;
    return true;
  }

  Table &table;
  const int p;
  std::vector<std::set<Entry>> waiting; // actions by rank
  std::vector<int> held;                // activations by rank
  std::vector<int> forward, backward;   // start times
  int lastBegun = 0;
};

} // namespace

void fillChimera(Table &table) {
  // Schedules a multiple of p microbatches, then drops those beyond
  // `table.microbatches`.
  Table whole = table;
  whole.microbatches =
      (table.microbatches + table.ranks - 1) / table.ranks * table.ranks;
  ListScheduler(whole).run();
  table.actions = std::move(whole.actions);
  dropMicrobatches(table);
}

} // namespace cleave::pipeline
