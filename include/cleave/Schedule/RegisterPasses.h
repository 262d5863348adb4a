// Makes the passes of this folder known by name, for tools and tests that run
// pipelines from text. Apart from Passes.h, as it costs whoever includes it.

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
