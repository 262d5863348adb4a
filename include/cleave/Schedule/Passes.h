// The passes of the schedule phase.

#ifndef CLEAVE_SCHEDULE_PASSES_H
#define CLEAVE_SCHEDULE_PASSES_H

#include "mlir/Pass/Pass.h"

namespace cleave {
#define GEN_PASS_DECL
#include "cleave/Schedule/Passes.h.inc"
} // namespace cleave

#endif
