// Registers the passes of this folder by name, for tools and tests that run
// pipelines from text. A header apart from Passes.h, because the registration
// of passes is slow to compile.

#ifndef CLEAVE_ACTIONS_REGISTERPASSES_H
#define CLEAVE_ACTIONS_REGISTERPASSES_H

#include "cleave/Actions/Passes.h"

namespace cleave {
namespace actions {
#define GEN_PASS_REGISTRATION
#include "cleave/Actions/Passes.h.inc"
} // namespace actions
} // namespace cleave

#endif
