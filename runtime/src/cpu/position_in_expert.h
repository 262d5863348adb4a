// Counts, for each pair of a token and an expert that it chose (a slot), the
// earlier pairs with the same expert.
#ifndef CLEAVE_RUNTIME_CPU_POSITION_IN_EXPERT_H
#define CLEAVE_RUNTIME_CPU_POSITION_IN_EXPERT_H

#include "cleave/program.h"
#include "command_buffers.h"

namespace cleave {

// The time is linear in the sizes of ids and loads and in the number of experts
// if the positions of each sample increase. Otherwise positions are sorted
// first: once if all samples have the same positions, else for each sample.
void positionInExpert(const program::PositionInExpert &x,
                      const PositionInExpertBuffers &at);

} // namespace cleave

#endif // CLEAVE_RUNTIME_CPU_POSITION_IN_EXPERT_H
