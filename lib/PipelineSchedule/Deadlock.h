// Deadlock detection of the verifier, for matched transfers and collectives.

#ifndef CLEAVE_LIB_PIPELINESCHEDULE_DEADLOCK_H
#define CLEAVE_LIB_PIPELINESCHEDULE_DEADLOCK_H

#include "cleave/PipelineSchedule/Verify.h"

#include <optional>

namespace cleave::pipeline {

// One rank's share in a transfer or collective: the indices of the start and of
// the wait in the rank's list. They are equal if the operation blocks.
struct Part {
  int rank = 0;
  size_t start = 0, wait = 0;
};

// An operation that several ranks perform together: a transfer from a sender to
// a receiver, or one instance of a collective.
struct Joint {
  std::vector<Part> parts;
  int communicator = -1; // -1 for a transfer
  bool transfer = false; // parts[0] sends to parts[1]
};

// Returns a cycle of items that wait for each other, if there is one. The
// operations of one communicator are in `joints` in the order in which the
// communicator runs them.
std::optional<Finding> findDeadlock(const Program &program,
                                    const std::vector<Joint> &joints);

// The position of an item, for findings.
Place placeOf(const Program &program, int rank, size_t index);
// "rank 1, action 4: 1SEND_F0".
std::string describe(const Place &place);

} // namespace cleave::pipeline

#endif // CLEAVE_LIB_PIPELINESCHEDULE_DEADLOCK_H
