// Registers the passes of this folder by name, for tools and tests that run
// pipelines from text. A header apart from Passes.h, because the registration
// of passes is slow to compile.

#ifndef CLEAVE_FUSION_REGISTERPASSES_H
#define CLEAVE_FUSION_REGISTERPASSES_H

#include "cleave/Fusion/Passes.h"

namespace cleave {
namespace kernels {
#define GEN_PASS_REGISTRATION
#include "cleave/Fusion/Passes.h.inc"
} // namespace kernels
} // namespace cleave

#endif
