// Registers the passes of this folder by name, for tools and tests that run
// textual pipelines. This header is separate from Passes.h, because it is slow
// to compile.

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
