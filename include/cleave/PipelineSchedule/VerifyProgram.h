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

// Proves for every action that the host runs that no rank waits forever: the
// n-th send of a channel matches its n-th receive and has the same size, all
// members of a group run the same collectives in the same order, every start
// has a wait, and there is no cycle of waits. Also proves that no command
// writes memory that a transfer in flight reads, and that no command accesses
// memory that a transfer in flight writes. The proof covers those accesses of a
// command that are known; for an operand of a kernel, only the first byte is
// known.
//
// All ranks of a class run the same list, so one rank represents each class: if
// there is a cycle of waits among all ranks, there is also one among the
// classes.
std::vector<Finding> verify(const program::Program &program, size_t most = 20);

// Returns the program that is verified for one action, with one rank for each
// class.
Program programOf(const program::Program &program, const std::string &action);

// The table from which the lists of a pipeline step were generated. Class r of
// the program is rank r of the table.
struct StepOrigin {
  std::string action; // the list that runs a step
  LoweredTable table;
  // For each arena, the bytes of one microbatch's slot. A missing entry or 0
  // means that the arena is not divided into slots.
  std::vector<int64_t> slotBytes;
};

// Proves that the list of each rank follows the table: it calls every pass
// once, and starts and ends the transfers, in the order and with the peers that
// the table states. A transfer without data is omitted by both sender and
// receiver. Also proves that two microbatches never use the same slot of an
// arena at the same time. A microbatch uses its slot from the first to the last
// command that accesses the microbatch's values in this arena.
//
// A command is identified by its label, such as `0F3`. The name of the action
// that a call runs must match the label: for `0F3`, it ends in `.F.0`.
std::vector<Finding> verifyStep(const program::Program &program,
                                const StepOrigin &origin, size_t most = 20);

} // namespace cleave::pipeline

#endif // CLEAVE_PIPELINESCHEDULE_VERIFYPROGRAM_H
