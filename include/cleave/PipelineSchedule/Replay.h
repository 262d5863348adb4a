// Simulates a pipeline schedule: computes when each action starts and ends, how
// long the ranks are idle, and how many activations they hold. A rank runs its
// actions in order; an action starts when its inputs have arrived.
//
// Plain C++: no LLVM, no exceptions.

#ifndef CLEAVE_PIPELINESCHEDULE_REPLAY_H
#define CLEAVE_PIPELINESCHEDULE_REPLAY_H

#include "cleave/PipelineSchedule/Table.h"

#include <vector>

namespace cleave::pipeline {

// The durations of a stage's actions F, I, W and B for one microbatch.
struct StageTimes {
  double f = 1, i = 1, w = 1;
  double b = -1; // below 0: i + w
  double backward() const { return b < 0 ? i + w : b; }
  double of(ActionKind kind) const; // 0 for kinds that do not compute
};

struct Times {
  std::vector<StageTimes> stage; // by stage; defaults for missing entries
  double transfer = 0;           // time of one message between ranks
  // Replace `transfer` for the stages for which they have an entry. Entry s of
  // `fromBefore` is the time of a message from the previous stage to stage s;
  // entry s of `fromEnd` is that of a message from the next stage to stage s.
  std::vector<double> fromBefore, fromEnd;

  static Times uniform(int stages, double f, double i, double w,
                       double transfer = 0);
  double of(const Action &action) const;
  double toStage(int stage, bool isForward) const;
};

struct Span {
  double start = 0, end = 0;
};

struct RankReplay {
  double busy = 0;         // time in which the rank computes
  double messages = 0;     // transfer times of all messages to the rank
  double waits = 0;        // part of `messages` in which the rank is idle
  double spanIdle = 0;     // idle time between the first and the last action
  double makespanIdle = 0; // idle time between start and end of the step
  // The maximum number of activations that the rank holds at once; 1 stands for
  // the activations of one stage and microbatch.
  int peakInputs = 0; // if activations are held from F to the end of I
  int peak = 0;       // if activations are held from F to the end of W
  // At `peak`: activations that are held before I (M_B in the literature on
  // zero-bubble schedules), and those that are held from I to W (M_W).
  int peakB = 0, peakW = 0;
};

struct Replay {
  double makespan = 0;
  double bubble = 0;         // largest makespanIdle of a rank
  double spanBubble = 0;     // largest spanIdle of a rank
  double bubbleFraction = 0; // makespanIdle over makespan, mean of all ranks
  double bubbleOfIdeal = 0;  // idle over busy time, summed over all ranks
  std::vector<RankReplay> rank;
  std::vector<std::vector<Span>> spans; // of the actions in Table::actions
};

// Simulates the schedule and returns all times. Fails if a rank waits for a
// message that is never sent; the error names the actions at which ranks are
// stuck. Only passes (F, I, W, B) and transfers between adjacent stages on
// different ranks take time.
Result<Replay> replay(const Table &table, const Times &times = {});

// Returns the time of a step if many steps follow each other without a barrier,
// so that a rank that has finished a step begins the next one at once. With a
// barrier between steps (such as the reduction of a global gradient norm, which
// all ranks wait for), a step takes Replay::makespan.
Result<double> stepWithoutBarrier(const Table &table, const Times &times = {});

} // namespace cleave::pipeline

#endif // CLEAVE_PIPELINESCHEDULE_REPLAY_H
