// The verifier for programs as the runtime reads them.
//
// Plain C++: no LLVM, no exceptions.

#ifndef CLEAVE_PIPELINE_VERIFYPROGRAM_H
#define CLEAVE_PIPELINE_VERIFYPROGRAM_H

#include "cleave/Pipeline/Verify.h"
#include "cleave/program.h"

#include <string>
#include <vector>

namespace cleave::pipeline {

// Proves for every action that the host runs that no rank waits for ever: that
// sends meet receives of their size in the order of their channel, that all
// members of a group run the same collectives in the same order, that what is
// started is waited for, and that there is no circle of waits.
//
// Ranks of one class run one list, so one rank stands for each class: a circle
// among all ranks would be one among the classes.
std::vector<Finding> verify(const program::Program &program, size_t most = 20);

// What is looked at for one action; a rank for each class.
Program programOf(const program::Program &program, const std::string &action);

} // namespace cleave::pipeline

#endif // CLEAVE_PIPELINE_VERIFYPROGRAM_H
