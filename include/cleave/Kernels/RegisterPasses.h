// Makes the passes of this folder known by name, for tools and tests that run
// pipelines from text. Apart from Passes.h, as it costs whoever includes it.

#ifndef CLEAVE_KERNELS_REGISTERPASSES_H
#define CLEAVE_KERNELS_REGISTERPASSES_H

#include "cleave/Kernels/Passes.h"

namespace cleave {
namespace kernels {
#define GEN_PASS_REGISTRATION
#include "cleave/Kernels/Passes.h.inc"
} // namespace kernels
} // namespace cleave

#endif
