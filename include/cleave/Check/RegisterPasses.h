// Registers the passes of this folder by name, for tools and tests that run
// textual pipelines. This header is separate from Passes.h, because it is slow
// to compile.

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
