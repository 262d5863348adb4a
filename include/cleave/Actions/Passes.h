// Passes that cut the functions of pipeline stages into the actions of a
// schedule.

#ifndef CLEAVE_ACTIONS_PASSES_H
#define CLEAVE_ACTIONS_PASSES_H

#include "mlir/Pass/Pass.h"

namespace cleave {

#define GEN_PASS_DECL
#include "cleave/Actions/Passes.h.inc"
} // namespace cleave

#endif
