// The verifier for programs in the runtime's format.
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

// Proves for every action that the host runs that no rank waits for ever: sends
// match receives of their size in the order of their channel, all members of a
// group run the same collectives in the same order, every start has a wait, and
// there is no cycle of waits. Also proves that no command writes memory of a
// transfer in flight, and that no command touches memory that a transfer in
// flight writes, as far as the memory of a command is known: of a kernel's
// operand only the first byte is.
//
// Ranks of one class run one list, so one rank represents each class: a cycle
// of waits among all ranks would be one among the classes, too.
std::vector<Finding> verify(const program::Program &program, size_t most = 20);

// The program that is verified for one action, with a rank for each class.
Program programOf(const program::Program &program, const std::string &action);

// The source of the lists of a pipeline's step. Class r of the program is rank
// r of the table.
struct StepOrigin {
  std::string action; // the list that runs a step
  LoweredTable table;
  // Bytes of a slot, by arena; 0, or missing: the arena is not divided into
  // slots of microbatches.
  std::vector<int64_t> slotBytes;
};

// Proves that the list of each rank follows the table: it calls every pass
// once, and starts and ends the transfers, in the table's order and with its
// ranks; a transfer that moves nothing is missing on both sides. Also proves
// that each microbatch has one slot of an arena for itself, from its first
// command there to its last.
//
// Commands are identified by their labels, `0F3`, and calls also by the name of
// the called action, `.F.0`.
std::vector<Finding> verifyStep(const program::Program &program,
                                const StepOrigin &origin, size_t most = 20);

} // namespace cleave::pipeline

#endif // CLEAVE_PIPELINESCHEDULE_VERIFYPROGRAM_H
