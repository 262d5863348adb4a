// Registers the passes of this folder by name, for tools and tests that parse
// pass pipelines from text. This header is separate from Passes.h, because code
// that registers passes is slow to compile.

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
