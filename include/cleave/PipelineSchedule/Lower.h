// Adds the transfers between stages to a pipeline schedule, as starts and waits
// that overlap with compute. Also assigns slots to the values of the stages; a
// slot is the memory for a value of one microbatch in flight.
//
// Plain C++: no LLVM, no exceptions.

#ifndef CLEAVE_PIPELINESCHEDULE_LOWER_H
#define CLEAVE_PIPELINESCHEDULE_LOWER_H

#include "cleave/PipelineSchedule/Replay.h"
#include "cleave/PipelineSchedule/Table.h"

#include <string>
#include <string_view>
#include <vector>

namespace cleave::pipeline {

// A rank's action list contains a transfer or collective either as a start and
// a later wait, or as one blocking action (Run). An action that computes is
// always Run.
enum class Phase { Run, Start, Wait };

struct LoweredAction {
  Action action;
  Phase phase = Phase::Run;
  int peer = -1; // the other rank of a transfer
  bool operator==(const LoweredAction &) const = default;
};

// Prints the start of a transfer like a blocking transfer, `1SEND_F3`, and its
// wait as `1WAIT_SEND_F3`.
std::string print(const LoweredAction &action);

// A pipeline schedule with transfers. All messages from one rank to another
// form a channel: the n-th send in a channel matches the n-th receive. The wait
// for a receive ends when both the send and the receive have started. The wait
// for a send may end only when the receiver has reached its wait for the
// receive.
struct LoweredTable {
  std::string schedule;
  int ranks = 0, stages = 0, microbatches = 0;
  bool asynchronous = false;
  std::vector<std::vector<int>> stagesOfRank;
  std::vector<std::vector<LoweredAction>> actions; // the list of each rank
};

struct LowerOptions {
  // How many compute actions before the action that reads a message its receive
  // is started; at least 0.
  int lookahead = 1;
  // `times` and `spareSends` determine the maximum number of messages in flight
  // for each stage and direction. This number is the smallest with which no
  // rank waits for a send in a simulation with the times `times`, plus
  // `spareSends` as a reserve, because real times vary.
  Times times;
  int spareSends = 1;
};

// Adds the transfers to the schedule: one message for each microbatch and
// direction (forward and backward) between neighbouring stages on different
// ranks. A send starts right after the action that computes the value. The wait
// for the send is as late as the maximum number of messages in flight allows.
Result<LoweredTable> lower(const Table &table,
                           const LowerOptions &options = {});

// Reads a pipeline schedule that also has transfers, in the CSV format of
// docs/pipeline.md: each line has the actions of one rank. If a line has both
// `1SEND_F3` and `1WAIT_SEND_F3`, then `1SEND_F3` only starts the transfer. In
// a line without `1WAIT_SEND_F3`, it blocks until the transfer is complete.
// `name` is the name of the file in error messages.
Result<LoweredTable> readLoweredText(std::string_view text,
                                     const std::string &name);
std::string writeLowered(const LoweredTable &table);

//===----------------------------------------------------------------------===//
// Slots
//===----------------------------------------------------------------------===//

// An action, described by its kind, that begins or ends the lifetime of a
// value. A complete backward pass (B) counts as both of its halves, the
// gradient of the input (I) and the gradients of the weights (W). A blocking
// transfer counts as both its start and its wait.
struct Event {
  ActionKind kind = ActionKind::F;
  Phase phase = Phase::Run; // Start or Wait for a transfer, otherwise Run
  int offset = 0;           // stage of the action minus stage of the value
  bool operator==(const Event &) const = default;
};

// A value class: a value of a stage, which exists once for each microbatch. The
// lifetime of a microbatch's value begins with the first event in the list
// `first` that the rank's schedule contains for this microbatch. It ends with
// that event of `last` that comes latest in the rank's schedule for this
// microbatch. If the schedule contains no event of `first` or none of `last`,
// the microbatch has no such value. Examples:
//   input of a stage      {RecvF Start} to {W}
//   residuals             {F} to {W}, or {F} to {I} and {I} to {W}
//   output that is sent   {F} to {SendF Wait}
//   output that the rank's next stage reads
//                         {F} to {F of the next stage: offset 1}
struct ValueClass {
  int stage = 0;
  std::vector<Event> first;
  std::vector<Event> last;
};

struct SlotPlan {
  int rank = 0;
  int valueClass = 0;      // index into the given value classes
  int count = 0;           // number of slots: maximum number of live values
  std::vector<int> slotOf; // by microbatch; -1: microbatch without the value
};

// Assigns a slot (memory of one value) to each value. Returns a plan for each
// value class and each rank that has values of this class, ordered by class and
// rank. Each value gets the lowest slot that is free at the start of its
// lifetime, so the number of slots is the peak number of live values. Fails if
// the lifetime of a value would end before it begins.
Result<std::vector<SlotPlan>>
assignSlots(const LoweredTable &table, const std::vector<ValueClass> &classes);

} // namespace cleave::pipeline

#endif // CLEAVE_PIPELINESCHEDULE_LOWER_H
