// Counts, for each slot, the earlier slots that chose the same expert.
#ifndef CLEAVE_RUNTIME_CPU_POSITION_IN_EXPERT_H
#define CLEAVE_RUNTIME_CPU_POSITION_IN_EXPERT_H

#include "cleave/program.h"
#include "command_buffers.h"

namespace cleave {

// Linear time in slots, experts and loads if positions increase. Otherwise
// positions are sorted first, once if samples share them.
void positionInExpert(const program::PositionInExpert &x,
                      const PositionInExpertBuffers &at);

} // namespace cleave

#endif // CLEAVE_RUNTIME_CPU_POSITION_IN_EXPERT_H
