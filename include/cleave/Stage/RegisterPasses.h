// Registers the passes of this folder by name, for tools and tests that run
// pipelines from text. A header apart from Passes.h, because the registration
// of passes is slow to compile.

#ifndef CLEAVE_STAGE_REGISTERPASSES_H
#define CLEAVE_STAGE_REGISTERPASSES_H

#include "cleave/Stage/Passes.h"

namespace cleave {
namespace stage {
#define GEN_PASS_REGISTRATION
#include "cleave/Stage/Passes.h.inc"
} // namespace stage
} // namespace cleave

#endif
