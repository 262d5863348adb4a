// Simulates a table: it computes when every action starts and ends, how long
// ranks are idle and how many activations they hold. A rank runs its actions in
// order; an action starts when its inputs have arrived.
//
// Plain C++: no LLVM, no exceptions.

#ifndef CLEAVE_PIPELINESCHEDULE_REPLAY_H
#define CLEAVE_PIPELINESCHEDULE_REPLAY_H

#include "cleave/PipelineSchedule/Table.h"

#include <vector>

namespace cleave::pipeline {

struct StageTimes {
  double f = 1, i = 1, w = 1;
  double b = -1; // below 0: i + w
  double backward() const { return b < 0 ? i + w : b; }
  double of(ActionKind kind) const; // 0 for what does not compute
};

struct Times {
  std::vector<StageTimes> stage; // by stage; a missing one has the defaults
  double transfer = 0;           // of one message between ranks
  // If not empty, these replace `transfer`. Entry s of `fromBefore` is the time
  // of a message from the previous stage to stage s; entry s of `fromEnd` is
  // that of a message from the next stage to stage s.
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
  double busy = 0;
  double messages = 0;     // until messages from others arrived, in total
  double waits = 0;        // of these, the time that the rank was idle
  double spanIdle = 0;     // between its first and its last action
  double makespanIdle = 0; // from the start of the step to its end
  // The most activations that the rank holds at once, in units of the
  // activations of one stage and microbatch. The fields count activations over
  // different spans of time:
  int peakInputs = 0;       // from F to the end of I (M_B)
  int peak = 0;             // from F to the end of W (M_B before I, M_W after)
  int peakB = 0, peakW = 0; // parts of `peak`
};

struct Replay {
  double makespan = 0;
  double bubble = 0;         // largest makespanIdle of a rank
  double spanBubble = 0;     // largest spanIdle of a rank
  double bubbleFraction = 0; // idle over the total span, mean of the ranks
  double bubbleOfIdeal = 0;  // idle over busy
  std::vector<RankReplay> rank;
  std::vector<std::vector<Span>> spans; // as Table::actions
};

// Simulates the table and returns all times. Fails if a rank waits for a
// message that is never sent; the error names the actions. Only passes (F, I,
// W, B) and transfers between adjacent stages on different ranks take time.
Result<Replay> replay(const Table &table, const Times &times = {});

// Returns the time of a step if many steps follow each other without a barrier:
// a rank that has finished a step begins the next one at once. With a barrier
// (such as a global gradient norm, for which all ranks must finish first), a
// step takes the makespan.
Result<double> stepWithoutBarrier(const Table &table, const Times &times = {});

} // namespace cleave::pipeline

#endif // CLEAVE_PIPELINESCHEDULE_REPLAY_H
