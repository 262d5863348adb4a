// Registers the passes of this folder by name, for tools and tests that parse
// pass pipelines from text. This header is separate from Passes.h, because code
// that registers passes is slow to compile.

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
