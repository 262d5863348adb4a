// Chooses cuts by dynamic programming over the positions at which a sequence of
// operations may be cut. A longer stage takes more time, so the admissible
// starts of a stage with a given end form a sliding window. A monotonic queue
// yields the minimum of the window.

#include "BalanceStages.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <deque>
#include <optional>

using namespace llvm;
using namespace cleave::stage;

namespace {

/// Candidate positions of cuts. Between two adjacent candidates there is at
/// least one operation that takes time. Of several positions without such an
/// operation between them, the candidate is the one at which the fewest bytes
/// would be sent to the next stage.
struct Places {
  SmallVector<int64_t>
      items; // the item after the cut; 0 and the end are included
  SmallVector<double> seconds; // of all items before the cut
  SmallVector<int64_t> memory;
  SmallVector<Crossing> crossings;
};

Places placesOf(const Line &line) {
  Places places;
  int64_t count = line.seconds.size();
  double seconds = 0;
  int64_t memory = 0;
  bool passed = false; // whether time passed since the last candidate
  auto add = [&](int64_t item, Crossing crossing) {
    places.items.push_back(item);
    places.seconds.push_back(seconds);
    places.memory.push_back(memory);
    places.crossings.push_back(crossing);
  };
  add(0, {});
  for (int64_t item = 0; item < count; ++item) {
    if (item) {
      if (passed)
        add(item, line.crossings[item]);
      else if (places.items.size() > 1 &&
               line.crossings[item] < places.crossings.back()) {
        places.items.back() = item;
        places.memory.back() = memory;
        places.crossings.back() = line.crossings[item];
      }
      passed = false;
    }
    seconds += line.seconds[item];
    memory += line.memory[item];
    passed = line.seconds[item] > 0;
  }
  // If no operation after the last candidate position takes time, a cut there
  // would give a stage without compute time, so this candidate is dropped.
  if (places.items.size() > 1 && places.seconds.back() >= seconds) {
    for (auto *list : {&places.items, &places.memory})
      list->pop_back();
    places.seconds.pop_back();
    places.crossings.pop_back();
  }
  add(count, {});
  return places;
}

class Balancer {
public:
  Balancer(const Places &places, int64_t stages)
      : places(places), stages(stages), last(places.items.size() - 1) {}

  /// Returns the positions of the cuts, without the beginning and the end of
  /// the sequence.
  SmallVector<int64_t> run() {
    double least = leastTime();
    double limit = least * (1 + kSlack);
    SmallVector<int64_t> best = *fewestBytes(limit);
    Crossing fewest = crossingOf(best);
    // Among cuts with equally few bytes, prefers those whose slowest stage
    // takes the least time.
    double low = least, high = slowestOf(best);
    for (int step = 0; step < 40 && low < high * (1 - 1e-9); ++step) {
      double middle = step ? (low + high) / 2 : low;
      auto found = fewestBytes(middle);
      if (found && crossingOf(*found) == fewest) {
        best = *found;
        high = slowestOf(best);
      } else {
        low = middle;
      }
    }
    spreadMemory(best, high);
    return best;
  }

  double slowestOf(ArrayRef<int64_t> cuts) const {
    double slowest = 0;
    for (int64_t stage = 0; stage < stages; ++stage)
      slowest = std::max(slowest, time(begin(cuts, stage), end(cuts, stage)));
    return slowest;
  }

  Crossing crossingOf(ArrayRef<int64_t> cuts) const {
    Crossing sum;
    for (int64_t cut : cuts)
      sum = sum + places.crossings[cut];
    return sum;
  }

private:
  static int64_t begin(ArrayRef<int64_t> cuts, int64_t stage) {
    return stage ? cuts[stage - 1] : 0;
  }
  int64_t end(ArrayRef<int64_t> cuts, int64_t stage) const {
    return stage < stages - 1 ? cuts[stage] : last;
  }
  double time(int64_t from, int64_t to) const {
    return places.seconds[to] - places.seconds[from];
  }
  // The comparison allows for rounding, because sums of the same items in a
  // different order differ.
  static bool within(double seconds, double limit) {
    return seconds <= limit * (1 + 1e-9);
  }

  /// Returns the smallest possible time of the slowest stage. It is found by a
  /// binary search over a time limit, up to which stages are filled greedily.
  double leastTime() const {
    auto fits = [&](double limit) {
      int64_t used = 1, from = 0;
      for (int64_t to = 1; to <= last; ++to)
        if (!within(time(from, to), limit)) {
          from = to - 1;
          ++used;
          if (used > stages || !within(time(from, to), limit))
            return false;
        }
      return true;
    };
    double low = 0, high = time(0, last);
    for (int step = 0; step < 60; ++step) {
      double middle = (low + high) / 2;
      (fits(middle) ? high : low) = middle;
    }
    return high;
  }

  /// Among cuts for which every stage takes at most `limit` seconds, returns
  /// those with the fewest bytes sent between stages; nullopt if there are no
  /// such cuts.
  std::optional<SmallVector<int64_t>> fewestBytes(double limit) const {
    using Cost = std::optional<Crossing>;
    SmallVector<Cost> cost(last + 1);
    cost[0] = Crossing();
    SmallVector<SmallVector<int64_t>> from(stages,
                                           SmallVector<int64_t>(last + 1, -1));
    for (int64_t stage = 0; stage < stages; ++stage) {
      SmallVector<Cost> next(last + 1);
      std::deque<std::pair<Crossing, int64_t>> window; // costs ascend
      int64_t first = 0; // the first start that is not too early
      for (int64_t to = 1; to <= last; ++to) {
        if (cost[to - 1]) {
          Crossing start = *cost[to - 1] + places.crossings[to - 1];
          while (!window.empty() && start < window.back().first)
            window.pop_back();
          window.push_back({start, to - 1});
        }
        while (first < to && !within(time(first, to), limit))
          ++first;
        while (!window.empty() && window.front().second < first)
          window.pop_front();
        if (window.empty())
          continue;
        next[to] = window.front().first;
        from[stage][to] = window.front().second;
      }
      cost = std::move(next);
    }
    if (!cost[last])
      return std::nullopt;
    SmallVector<int64_t> cuts;
    int64_t to = last;
    for (int64_t stage = stages - 1; stage > 0; --stage)
      cuts.push_back(to = from[stage][to]);
    std::reverse(cuts.begin(), cuts.end());
    return cuts;
  }

  /// Moves cuts one by one to other positions, without changing the traffic
  /// between stages. A move must either balance the memory of the two adjacent
  /// stages better, or balance their time better without changing the balance
  /// of memory.
  void spreadMemory(SmallVector<int64_t> &cuts, double limit) const {
    auto unevenness = [&](int64_t from, int64_t cut, int64_t to) {
      double before = places.memory[cut] - places.memory[from],
             after = places.memory[to] - places.memory[cut];
      double early = time(from, cut), late = time(cut, to);
      return std::pair(before * before + after * after,
                       early * early + late * late);
    };
    bool changed = true;
    for (int sweep = 0; sweep < 8 && changed; ++sweep) {
      changed = false;
      for (int64_t stage = 0; stage + 1 < stages; ++stage) {
        int64_t from = begin(cuts, stage), to = end(cuts, stage + 1);
        int64_t best = cuts[stage];
        for (int64_t cut = from + 1; cut < to; ++cut)
          if (places.crossings[cut] == places.crossings[cuts[stage]] &&
              within(time(from, cut), limit) && within(time(cut, to), limit) &&
              unevenness(from, cut, to) < unevenness(from, best, to))
            best = cut;
        changed |= best != cuts[stage];
        cuts[stage] = best;
      }
    }
  }

  const Places &places;
  int64_t stages, last;
};

} // namespace

int64_t cleave::stage::countCutPoints(const Line &line) {
  return static_cast<int64_t>(placesOf(line).items.size()) - 2;
}

Cuts cleave::stage::balance(const Line &line, int64_t stages) {
  Places places = placesOf(line);
  Balancer balancer(places, stages);
  SmallVector<int64_t> found = balancer.run();
  Cuts cuts;
  for (int64_t place : found)
    cuts.begins.push_back(places.items[place]);
  cuts.slowest = balancer.slowestOf(found);
  cuts.crossing = balancer.crossingOf(found);
  return cuts;
}

Cuts cleave::stage::follow(const Line &line,
                           ArrayRef<SmallVector<int64_t, 1>> wants,
                           int64_t stages) {
  struct Cost {
    int64_t displaced = 0;
    Crossing crossing;
    bool operator<(const Cost &other) const {
      return displaced != other.displaced ? displaced < other.displaced
                                          : crossing < other.crossing;
    }
  };
  int64_t count = line.seconds.size();
  SmallVector<std::optional<Cost>> cost(count + 1);
  cost[0] = Cost();
  SmallVector<SmallVector<int64_t>> from(stages,
                                         SmallVector<int64_t>(count + 1, -1));
  for (int64_t stage = 0; stage < stages; ++stage) {
    SmallVector<std::optional<Cost>> next(count + 1);
    // The cheapest start of this stage found so far. Its cost includes those
    // items of the stage, up to the current item, that the user's patterns
    // require to be in another stage.
    std::optional<Cost> best;
    int64_t start = -1;
    for (int64_t to = 1; to <= count; ++to) {
      if (cost[to - 1]) {
        Cost here = *cost[to - 1];
        if (stage)
          here.crossing = here.crossing + line.crossings[to - 1];
        if (!best || here < *best) {
          best = here;
          start = to - 1;
        }
      }
      if (!best)
        continue;
      ArrayRef<int64_t> wanted = wants[to - 1];
      best->displaced += !wanted.empty() && !is_contained(wanted, stage);
      next[to] = best;
      from[stage][to] = start;
    }
    cost = std::move(next);
  }
  Cuts cuts;
  cuts.crossing = cost[count]->crossing;
  cuts.displaced = cost[count]->displaced;
  int64_t to = count;
  for (int64_t stage = stages - 1; stage > 0; --stage)
    cuts.begins.push_back(to = from[stage][to]);
  std::reverse(cuts.begins.begin(), cuts.begins.end());
  return cuts;
}
