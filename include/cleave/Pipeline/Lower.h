// Adds the transfers to a table, as starts and waits that overlap with what is
// computed, and gives values slots.
//
// Plain C++: no LLVM, no exceptions.

#ifndef CLEAVE_PIPELINE_LOWER_H
#define CLEAVE_PIPELINE_LOWER_H

#include "cleave/Pipeline/Replay.h"
#include "cleave/Pipeline/Table.h"

#include <string>
#include <string_view>
#include <vector>

namespace cleave::pipeline {

// How a transfer or a collective stands in a list: started and waited for
// later, or both at once (Run). What computes is always Run.
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
  // Decides how many messages of a stage may be under way without a stall.
  Times times;
};

// One message per boundary between stages on different ranks, microbatch and
// direction. A send starts right after what computes its value and is waited
// for as late as its slot allows; the number of slots per stage is such that
// with the given times nobody waits for a send.
Result<LoweredTable> lower(const Table &table,
                           const LowerOptions &options = {});

// As readTable, with transfers. A transfer whose wait stands in the row is a
// start; without one it blocks.
Result<LoweredTable> readLoweredText(std::string_view text,
                                     const std::string &name);
std::string writeLowered(const LoweredTable &table);

//===----------------------------------------------------------------------===//
// Slots
//===----------------------------------------------------------------------===//

// A place in a list, for one stage and microbatch.
struct Event {
  ActionKind kind = ActionKind::F;
  Phase phase = Phase::Run;
  bool operator==(const Event &) const = default;
};

// Values of a stage, one per microbatch, that live from the beginning of an
// event to the end of the last of some others. B stands for I and for W, and a
// Run for the start and the wait of a transfer. Events that the list lacks (the
// first stage receives nothing) are passed over; a first event that is lacking
// is replaced by the next one given, and where none is there the class has no
// values on that rank.
struct ValueClass {
  int stage = 0;
  std::vector<Event> first; // the first of these that the list has
  std::vector<Event> last;  // ends at the latest of these
};

struct SlotPlan {
  int rank = 0;
  int valueClass = 0;      // index into the given classes
  int count = 0;           // most values alive at once, in the rank's order
  std::vector<int> slotOf; // by microbatch; -1: not on this rank
};

// A plan for every class and rank that holds its stage, ordered by class and
// rank. The lowest free slot is taken, so counts are the peaks.
Result<std::vector<SlotPlan>>
assignSlots(const LoweredTable &table, const std::vector<ValueClass> &classes);

} // namespace cleave::pipeline

#endif // CLEAVE_PIPELINE_LOWER_H
