// Simulates a pipeline schedule: each rank runs its list of actions in order,
// and an action starts when its rank is free and its inputs have arrived.

#include "cleave/PipelineSchedule/Replay.h"

#include <algorithm>
#include <cmath>

namespace cleave::pipeline {

double StageTimes::of(ActionKind kind) const {
  switch (kind) {
  case ActionKind::F:
    return f;
  case ActionKind::I:
    return i;
  case ActionKind::W:
    return w;
  case ActionKind::B:
    return backward();
  default:
    return 0;
  }
}

Times Times::uniform(int stages, double f, double i, double w,
                     double transfer) {
  Times times;
  times.stage.assign(std::max(stages, 0), StageTimes{f, i, w});
  times.transfer = transfer;
  return times;
}

double Times::of(const Action &action) const {
  StageTimes defaults;
  bool known =
      action.stage >= 0 && action.stage < static_cast<int>(stage.size());
  return (known ? stage[action.stage] : defaults).of(action.kind);
}

double Times::toStage(int stage, bool isForward) const {
  const std::vector<double> &times = isForward ? fromBefore : fromEnd;
  bool known = stage >= 0 && stage < static_cast<int>(times.size());
  return known ? times[stage] : transfer;
}

namespace {

constexpr double never = -1;

// The end time and the rank of a computed forward pass or input gradient.
struct Done {
  double end = never;
  int rank = -1;
};

// The times that the inputs of an action give. `start` is the time at which the
// action can start, `sent` the time at which it could start if messages took no
// time, and `message` the sum of the times of its messages.
struct Ready {
  double start = 0, sent = 0, message = 0;

  void wait(double end, double transfer) {
    start = std::max(start, end + transfer);
    sent = std::max(sent, end);
    message += transfer;
  }
};

class Walk {
public:
  Walk(const Table &table, const Times &times)
      : table(table), times(times), forward(size()), input(size()),
        next(table.ranks, 0), free(table.ranks, 0) {
    result.rank.resize(table.ranks);
    result.spans.resize(table.ranks);
    for (int rank = 0; rank < table.ranks; ++rank)
      result.spans[rank].resize(table.actions[rank].size());
  }

  Result<Replay> run() {
    // Each iteration simulates every rank until it must wait for another rank.
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < table.ranks; ++rank)
        while (step(rank))
          moved = true;
    }
    for (int rank = 0; rank < table.ranks; ++rank)
      if (next[rank] < table.actions[rank].size())
        return stuck();
    summarize();
    return std::move(result);
  }

private:
  size_t size() const {
    return static_cast<size_t>(table.stages) * table.microbatches;
  }
  size_t at(int stage, int microbatch) const {
    return static_cast<size_t>(stage) * table.microbatches + microbatch;
  }

  // Returns when the inputs of an action arrive; `start` is `never` if an input
  // is not computed yet.
  Ready ready(const Action &action, int rank) const {
    Ready ready;
    if (!isCompute(action.kind))
      return ready;
    int s = action.stage, m = action.microbatch;
    bool isForward = action.kind == ActionKind::F;
    bool computed = true;
    auto read = [&](const std::vector<Done> &values, int stage) {
      const Done &done = values[at(stage, m)];
      computed &= done.end != never;
      ready.wait(done.end, done.rank == rank ? 0 : times.toStage(s, isForward));
    };
    if (isForward) {
      if (s > 0)
        read(forward, s - 1);
    } else if (action.kind == ActionKind::W) {
      read(input, s);
    } else {
      read(forward, s);
      if (s + 1 < table.stages)
        read(input, s + 1);
    }
    if (!computed)
      ready.start = never;
    return ready;
  }

  bool step(int rank) {
    if (next[rank] == table.actions[rank].size())
      return false;
    const Action &action = table.actions[rank][next[rank]];
    Ready inputs = ready(action, rank);
    if (inputs.start == never)
      return false;
    double start = std::max(inputs.start, free[rank]);
    result.rank[rank].messages += inputs.message;
    result.rank[rank].waits += start - std::max(inputs.sent, free[rank]);
    double end = start + times.of(action);
    free[rank] = end;
    result.spans[rank][next[rank]++] = {start, end};
    if (action.kind == ActionKind::F)
      forward[at(action.stage, action.microbatch)] = {end, rank};
    if (action.kind == ActionKind::I || action.kind == ActionKind::B)
      input[at(action.stage, action.microbatch)] = {end, rank};
    return true;
  }

  Error stuck() const {
    std::string message = "schedule " + table.schedule + ": no rank can go on:";
    for (int rank = 0; rank < table.ranks; ++rank)
      if (next[rank] < table.actions[rank].size())
        message += " rank " + std::to_string(rank) + " is at " +
                   print(table.actions[rank][next[rank]]) + " (action " +
                   std::to_string(next[rank]) + ");";
    return {message + " each waits for a later action of another rank"};
  }

  void countActivations(int rank) {
    RankReplay &r = result.rank[rank];
    int b = 0, w = 0; // activations held until I, and from I to W
    for (const Action &action : table.actions[rank]) {
      b += action.kind == ActionKind::F;
      if (b > r.peakInputs)
        r.peakInputs = b;
      if (b + w > r.peak) {
        r.peak = b + w;
        r.peakB = b;
        r.peakW = w;
      }
      bool input = action.kind == ActionKind::I;
      b -= input || action.kind == ActionKind::B;
      w += input;
      w -= action.kind == ActionKind::W;
    }
  }

  void summarize() {
    for (double end : free)
      result.makespan = std::max(result.makespan, end);
    double idle = 0, busy = 0;
    for (int rank = 0; rank < table.ranks; ++rank) {
      RankReplay &r = result.rank[rank];
      const std::vector<Span> &spans = result.spans[rank];
      const Span *first = nullptr, *last = nullptr;
      for (size_t i = 0; i < spans.size(); ++i) {
        if (!isCompute(table.actions[rank][i].kind))
          continue;
        r.busy += spans[i].end - spans[i].start;
        first = first ? first : &spans[i];
        last = &spans[i];
      }
      r.spanIdle = first ? last->end - first->start - r.busy : 0;
      r.makespanIdle = result.makespan - r.busy;
      result.bubble = std::max(result.bubble, r.makespanIdle);
      result.spanBubble = std::max(result.spanBubble, r.spanIdle);
      idle += r.makespanIdle;
      busy += r.busy;
      countActivations(rank);
    }
    if (busy > 0) {
      result.bubbleFraction = idle / (idle + busy);
      result.bubbleOfIdeal = idle / busy;
    }
  }

  const Table &table;
  const Times &times;
  std::vector<Done> forward, input;
  std::vector<size_t> next;
  std::vector<double> free;
  Replay result;
};

} // namespace

Result<Replay> replay(const Table &table, const Times &times) {
  return Walk(table, times).run();
}

Result<double> stepWithoutBarrier(const Table &table, const Times &times) {
  // Simulates more and more steps until a step takes as long as the previous
  // one. If this does not happen within twice as many steps as ranks, returns
  // the mean time of the second half of the steps.
  for (int steps = 4;; steps *= 2) {
    Table many = repeated(table, steps);
    Result<Replay> replayed = replay(many, times);
    if (!replayed)
      return Error{replayed.error()};
    std::vector<double> ends(steps, 0);
    for (int rank = 0; rank < many.ranks; ++rank)
      for (size_t i = 0; i < many.actions[rank].size(); ++i) {
        int step = many.actions[rank][i].microbatch / table.microbatches;
        if (isCompute(many.actions[rank][i].kind))
          ends[step] = std::max(ends[step], replayed->spans[rank][i].end);
      }
    double last = ends[steps - 1] - ends[steps - 2];
    double before = ends[steps - 2] - ends[steps - 3];
    if (std::abs(last - before) <= 1e-9 * last)
      return last;
    if (steps >= 2 * table.ranks)
      return (ends[steps - 1] - ends[steps / 2 - 1]) / (steps / 2);
  }
}

} // namespace cleave::pipeline
