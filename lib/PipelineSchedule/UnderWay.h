// The rule that a transfer under way has its bytes alone.

#ifndef CLEAVE_LIB_PIPELINESCHEDULE_UNDERWAY_H
#define CLEAVE_LIB_PIPELINESCHEDULE_UNDERWAY_H

#include "cleave/PipelineSchedule/VerifyProgram.h"

namespace cleave::pipeline {

// The lists of this name, of the first rank of each class. At most one finding
// for each class, as others follow from the first.
std::vector<Finding> checkUnderWay(const program::Program &program,
                                   const std::string &action);

} // namespace cleave::pipeline

#endif // CLEAVE_LIB_PIPELINESCHEDULE_UNDERWAY_H
