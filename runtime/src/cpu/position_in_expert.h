// How many earlier slots have chosen the same expert.
#ifndef CLEAVE_RUNTIME_CPU_POSITION_IN_EXPERT_H
#define CLEAVE_RUNTIME_CPU_POSITION_IN_EXPERT_H

#include "cleave/program.h"
#include "command_buffers.h"

namespace cleave {

// Linear in slots, experts and loads where positions count up; else they are
// sorted first, once where samples share them.
void positionInExpert(const program::PositionInExpert &x,
                      const PositionInExpertBuffers &at);

} // namespace cleave

#endif // CLEAVE_RUNTIME_CPU_POSITION_IN_EXPERT_H
