// The verifier for programs as the runtime reads them.
//
// Plain C++: no LLVM, no exceptions.

#ifndef CLEAVE_PIPELINESCHEDULE_VERIFYPROGRAM_H
#define CLEAVE_PIPELINESCHEDULE_VERIFYPROGRAM_H

#include "cleave/PipelineSchedule/Verify.h"
#include "cleave/program.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cleave::pipeline {

// Proves for every action that the host runs that no rank waits for ever: that
// sends meet receives of their size in the order of their channel, that all
// members of a group run the same collectives in the same order, that what is
// started is waited for, and that there is no circle of waits. Nothing that a
// command writes is, by what is known of it, part of a transfer under way, and
// nothing touches what a transfer under way writes; a kernel's reference stands
// for the place where it begins.
//
// Ranks of one class run one list, so one rank stands for each class: a circle
// among all ranks would be one among the classes.
std::vector<Finding> verify(const program::Program &program, size_t most = 20);

// What is looked at for one action; a rank for each class.
Program programOf(const program::Program &program, const std::string &action);

// What the lists of a pipeline's step come from. Class r of the program is rank
// r of the table.
struct StepOrigin {
  std::string action; // the list that runs a step
  LoweredTable table;
  // By arena the bytes of a slot; 0, or missing: not divided into slots of
  // microbatches.
  std::vector<int64_t> slotBytes;
};

// Proves that the list of each rank is that of the table: it calls every pass
// once, and starts and ends the transfers, in that order and with those ranks;
// a transfer that moves nothing is missing on both sides. And that each
// microbatch has one slot of an arena, from its first command there to its
// last, alone.
//
// Commands are known by their labels, `0F3`, and those by what they call:
// `.F.0`.
std::vector<Finding> verifyStep(const program::Program &program,
                                const StepOrigin &origin, size_t most = 20);

} // namespace cleave::pipeline

#endif // CLEAVE_PIPELINESCHEDULE_VERIFYPROGRAM_H
