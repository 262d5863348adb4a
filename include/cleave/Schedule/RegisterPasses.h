// Registers the passes of this folder by name, for tools and tests that run
// pipelines from text. A header apart from Passes.h, because the registration
// of passes is slow to compile.

#ifndef CLEAVE_SCHEDULE_REGISTERPASSES_H
#define CLEAVE_SCHEDULE_REGISTERPASSES_H

#include "cleave/Schedule/Passes.h"

namespace cleave {
namespace schedule {
#define GEN_PASS_REGISTRATION
#include "cleave/Schedule/Passes.h.inc"
} // namespace schedule
} // namespace cleave

#endif
