// Registers the passes of this folder by name, for tools and tests that run
// textual pipelines. This header is separate from Passes.h, because it is slow
// to compile.

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
