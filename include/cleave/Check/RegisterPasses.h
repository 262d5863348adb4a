// Registers the passes of this folder by name, for tools and tests that run
// pipelines from text. A header apart from Passes.h, because the registration
// of passes is slow to compile.

#ifndef CLEAVE_CHECK_REGISTERPASSES_H
#define CLEAVE_CHECK_REGISTERPASSES_H

#include "cleave/Check/Passes.h"

namespace cleave {
namespace check {
#define GEN_PASS_REGISTRATION
#include "cleave/Check/Passes.h.inc"
} // namespace check
} // namespace cleave

#endif
