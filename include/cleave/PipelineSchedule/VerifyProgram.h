// The verifier for pipeline programs in the runtime's format, in which each
// rank has a list of commands.
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

// Proves for every function that the host runs (program::Action, such as a
// training step) that no rank waits forever: the n-th send of a channel matches
// its n-th receive and has the same size, all members of a group run the same
// collectives in the same order, every start has a wait, and there is no cycle
// of waits. Also proves that no command writes memory that a transfer in flight
// reads, and that no command accesses memory that a transfer in flight writes.
// The proof covers only the bytes that a command is known to access. For an
// operand of a kernel, only the first byte is known.
//
// Ranks are grouped into classes: all ranks of a class run the same command
// list. So one rank represents its class in the proof: if there is a cycle of
// waits among all ranks, there is also one among the classes.
std::vector<Finding> verify(const program::Program &program, size_t most = 20);

// Converts the command lists of one function of the program, `action`, to the
// verifier's form. The result has one rank for each class, that is, for each
// group of ranks that run the same command list.
Program programOf(const program::Program &program, const std::string &action);

// The pipeline schedule from which the command lists of a training step were
// generated. Ranks of the program with the same command list form a class; the
// ranks of class r run the action list of rank r of the schedule.
struct StepOrigin {
  std::string action; // name of the function that runs a step
  LoweredTable table;
  // For each arena of the program, the size in bytes of a slot, which is the
  // memory of one microbatch in flight. A missing entry or 0 means that the
  // arena is not divided into slots.
  std::vector<int64_t> slotBytes;
};

// Proves that the command list of each rank follows the pipeline schedule. The
// list must call the forward and backward passes of the schedule once each, and
// must start and end the transfers, in the order and with the peers that the
// schedule states. A transfer without data is omitted by both sender and
// receiver.
//
// Also proves that two microbatches never use the same slot of an arena (the
// memory of one microbatch in flight) at the same time. A microbatch uses its
// slot from the first to the last command that accesses the microbatch's values
// in this arena.
//
// The label of each command is the schedule's action that the command is a part
// of, such as `0F3` (forward pass of stage 0, microbatch 3). A call with the
// label `0F3` must call the function for the forward pass of stage 0, whose
// name ends in `.F.0`.
std::vector<Finding> verifyStep(const program::Program &program,
                                const StepOrigin &origin, size_t most = 20);

} // namespace cleave::pipeline

#endif // CLEAVE_PIPELINESCHEDULE_VERIFYPROGRAM_H
