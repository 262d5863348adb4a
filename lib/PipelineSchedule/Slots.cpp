// Assigns values to slots (a slot is the memory for one microbatch in flight)
// by colouring the intervals in which they are live in a rank's list of
// actions.

#include "cleave/PipelineSchedule/Lower.h"

#include <algorithm>
#include <optional>
#include <tuple>

namespace cleave::pipeline {

namespace {

// The position of each action in the list of one rank.
class Places {
public:
  explicit Places(const std::vector<LoweredAction> &list) {
    for (size_t i = 0; i < list.size(); ++i)
      entries.push_back({list[i].action, list[i].phase, i});
    std::sort(entries.begin(), entries.end());
  }

  std::optional<size_t> of(const ValueClass &values, const Event &event,
                           int m) const {
    Action action{values.stage + event.offset, event.kind, m};
    if (std::optional<size_t> place = find(action, event.phase))
      return place;
    if (isTransfer(event.kind))
      return find(action, Phase::Run);
    if (event.kind == ActionKind::I || event.kind == ActionKind::W)
      return find({action.stage, ActionKind::B, m}, Phase::Run);
    return std::nullopt;
  }

private:
  struct Entry {
    Action action;
    Phase phase;
    size_t place;
    auto operator<=>(const Entry &) const = default;
  };

  std::optional<size_t> find(const Action &action, Phase phase) const {
    auto found = std::lower_bound(entries.begin(), entries.end(),
                                  Entry{action, phase, 0});
    if (found == entries.end() || found->action != action ||
        found->phase != phase)
      return std::nullopt;
    return found->place;
  }

  std::vector<Entry> entries;
};

struct Interval {
  size_t first, last;
  int microbatch;
};

} // namespace

Result<std::vector<SlotPlan>>
assignSlots(const LoweredTable &table, const std::vector<ValueClass> &classes) {
  std::vector<Places> places;
  for (const std::vector<LoweredAction> &list : table.actions)
    places.emplace_back(list);

  std::vector<SlotPlan> plans;
  for (size_t c = 0; c < classes.size(); ++c)
    for (int rank = 0; rank < table.ranks; ++rank) {
      const ValueClass &values = classes[c];
      std::vector<Interval> intervals;
      for (int m = 0; m < table.microbatches; ++m) {
        std::optional<size_t> first, last;
        for (const Event &event : values.first)
          if (!first)
            first = places[rank].of(values, event, m);
        for (const Event &event : values.last)
          if (std::optional<size_t> place = places[rank].of(values, event, m))
            last = std::max(last.value_or(0), *place);
        if (!first || !last)
          continue;
        if (*last < *first)
          return Error{"schedule " + table.schedule + ", rank " +
                       std::to_string(rank) + ": a value of stage " +
                       std::to_string(values.stage) + " would be read by " +
                       print(table.actions[rank][*last]) + " (action " +
                       std::to_string(*last) + ") before " +
                       print(table.actions[rank][*first]) + " (action " +
                       std::to_string(*first) + ") writes it"};
        intervals.push_back({*first, *last, m});
      }
      if (intervals.empty())
        continue;
      std::sort(intervals.begin(), intervals.end(),
                [](const Interval &a, const Interval &b) {
                  return a.first < b.first;
                });
      SlotPlan plan{rank, static_cast<int>(c), 0,
                    std::vector<int>(table.microbatches, -1)};
      std::vector<size_t> freeAfter; // by slot: the index that frees it
      for (const Interval &interval : intervals) {
        size_t slot = 0;
        while (slot < freeAfter.size() && freeAfter[slot] >= interval.first)
          ++slot;
        if (slot == freeAfter.size())
          freeAfter.push_back(0);
        freeAfter[slot] = interval.last;
        plan.slotOf[interval.microbatch] = static_cast<int>(slot);
      }
      plan.count = static_cast<int>(freeAfter.size());
      plans.push_back(std::move(plan));
    }
  return plans;
}

} // namespace cleave::pipeline
