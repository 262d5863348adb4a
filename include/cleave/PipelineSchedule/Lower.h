// Adds the transfers to a table, as starts and waits that overlap with compute,
// and assigns slots to values.
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

// How a transfer or a collective appears in a list: as a start and a later
// wait, or as both at once (Run). An action that computes is always Run.
enum class Phase { Run, Start, Wait };

struct LoweredAction {
  Action action;
  Phase phase = Phase::Run;
  int peer = -1; // the other rank of a transfer
  bool operator==(const LoweredAction &) const = default;
};

// A start is printed like the transfer, `1SEND_F3`, its wait as
// `1WAIT_SEND_F3`.
std::string print(const LoweredAction &action);

// The messages from one rank to another form a channel: the n-th send started
// there belongs to the n-th receive started for it. A receive's wait ends when
// both are started; a send's wait not before the receiver is at its own wait.
struct LoweredTable {
  std::string schedule;
  int ranks = 0, stages = 0, microbatches = 0;
  bool asynchronous = false;
  std::vector<std::vector<int>> stagesOfRank;
  std::vector<std::vector<LoweredAction>> actions; // by rank
};

struct LowerOptions {
  // How many actions ahead of its reader a receive is started; at least 0.
  int lookahead = 1;
  // Determine the limit of messages in flight of a stage and direction: the
  // fewest with which no rank waits for a send under these times, and
  // `spareSends` more for times that vary.
  Times times;
  int spareSends = 1;
};

// One message per boundary between stages on different ranks, microbatch and
// direction. A send starts right after the action that computes its value, and
// its wait is as late as the limit of messages in flight allows.
Result<LoweredTable> lower(const Table &table,
                           const LowerOptions &options = {});

// As readTable, with transfers. A transfer whose wait is in the same row is a
// start; without a wait it blocks.
Result<LoweredTable> readLoweredText(std::string_view text,
                                     const std::string &name);
std::string writeLowered(const LoweredTable &table);

//===----------------------------------------------------------------------===//
// Slots
//===----------------------------------------------------------------------===//

// A position in a list. B counts as I and as W; a blocking transfer counts as
// its start and its wait.
struct Event {
  ActionKind kind = ActionKind::F;
  Phase phase = Phase::Run; // of a transfer Start or Wait, of the rest Run
  int offset = 0;           // the stage, relative to that of the value
  bool operator==(const Event &) const = default;
};

// Values of a stage, one per microbatch. A value lives from the beginning of
// the first event in `first` that the rank has for its microbatch to the end of
// the latest event in `last`. If the rank has no event of `first`, or none of
// `last`, the microbatch has no such value. Examples:
//   input of a stage   {RecvF Start} to {W}
//   residuals          {F} to {W}, or {F} to {I} and {I} to {W}
//   output             {F} to {SendF Wait}
//   output that stays  {F} to {F of the next stage: offset 1}
struct ValueClass {
  int stage = 0;
  std::vector<Event> first;
  std::vector<Event> last;
};

struct SlotPlan {
  int rank = 0;
  int valueClass = 0;      // index into the given classes
  int count = 0;           // most values alive at once, in the rank's order
  std::vector<int> slotOf; // by microbatch; -1: no value
};

// A plan for every class and rank that has values of it, ordered by class and
// rank. The lowest free slot is taken, so counts are the peaks. Fails where a
// value would end before it begins.
Result<std::vector<SlotPlan>>
assignSlots(const LoweredTable &table, const std::vector<ValueClass> &classes);

} // namespace cleave::pipeline

#endif // CLEAVE_PIPELINESCHEDULE_LOWER_H
