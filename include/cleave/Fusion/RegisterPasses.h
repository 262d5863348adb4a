// Registers the passes of this folder by name, for tools and tests that parse
// pass pipelines from text. This header is separate from Passes.h, because code
// that registers passes is slow to compile.

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
