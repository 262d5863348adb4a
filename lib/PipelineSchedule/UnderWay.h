// The verifier rule that no other command accesses the bytes of a transfer in
// flight.

#ifndef CLEAVE_LIB_PIPELINESCHEDULE_UNDERWAY_H
#define CLEAVE_LIB_PIPELINESCHEDULE_UNDERWAY_H

#include "cleave/PipelineSchedule/VerifyProgram.h"

namespace cleave::pipeline {

// Checks the command lists of `action`, one for each group of ranks that run
// identical commands. Returns at most one finding per list, as later findings
// would be consequences of the first.
std::vector<Finding> checkUnderWay(const program::Program &program,
                                   const std::string &action);

} // namespace cleave::pipeline

#endif // CLEAVE_LIB_PIPELINESCHEDULE_UNDERWAY_H
