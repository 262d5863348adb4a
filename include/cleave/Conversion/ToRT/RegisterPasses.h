// Registers the passes of this folder by name, for tools and tests that run
// pipelines from text. A header apart from Passes.h, because the registration
// of passes is slow to compile.

#ifndef CLEAVE_CONVERSION_TORT_REGISTERPASSES_H
#define CLEAVE_CONVERSION_TORT_REGISTERPASSES_H

#include "cleave/Conversion/ToRT/Passes.h"

namespace cleave {
namespace conversion {
#define GEN_PASS_REGISTRATION
#include "cleave/Conversion/ToRT/Passes.h.inc"
} // namespace conversion
} // namespace cleave

#endif
