// Registers the passes of this folder by name, for tools and tests that run
// textual pipelines. This header is separate from Passes.h, because it is slow
// to compile.

#ifndef CLEAVE_AUTODIFF_REGISTERPASSES_H
#define CLEAVE_AUTODIFF_REGISTERPASSES_H

#include "cleave/Autodiff/Passes.h"

namespace cleave {
namespace autodiff {
#define GEN_PASS_REGISTRATION
#include "cleave/Autodiff/Passes.h.inc"
} // namespace autodiff
} // namespace cleave

#endif
