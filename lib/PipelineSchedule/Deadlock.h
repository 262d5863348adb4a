// The part of the verifier that looks for deadlocks, once it is known which
// transfers and collectives belong together.

#ifndef CLEAVE_LIB_PIPELINESCHEDULE_DEADLOCK_H
#define CLEAVE_LIB_PIPELINESCHEDULE_DEADLOCK_H

#include "cleave/PipelineSchedule/Verify.h"

#include <optional>

namespace cleave::pipeline {

// Where a rank starts and waits for something; equal where it blocks.
struct Part {
  int rank = 0;
  size_t start = 0, wait = 0;
};

// A transfer (sender, receiver) or one instance of a collective.
struct Joint {
  std::vector<Part> parts;
  int communicator = -1; // of a collective
  bool transfer = false; // parts[0] sends to parts[1]
};

// `joints` of one communicator are in its order. A cycle of things that wait
// for each other, if there is one.
std::optional<Finding> findDeadlock(const Program &program,
                                    const std::vector<Joint> &joints);

// The place of an item, for findings.
Place placeOf(const Program &program, int rank, size_t index);
// "rank 1, action 4: 1SEND_F0".
std::string describe(const Place &place);

} // namespace cleave::pipeline

#endif // CLEAVE_LIB_PIPELINESCHEDULE_DEADLOCK_H
