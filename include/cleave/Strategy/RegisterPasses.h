// Registers the passes of this folder by name, for tools and tests that run
// textual pipelines. This header is separate from Passes.h, since it is slow to
// compile.

#ifndef CLEAVE_STRATEGY_REGISTERPASSES_H
#define CLEAVE_STRATEGY_REGISTERPASSES_H

#include "cleave/Strategy/Passes.h"

namespace cleave {
namespace strategy {
#define GEN_PASS_REGISTRATION
#include "cleave/Strategy/Passes.h.inc"
} // namespace strategy
} // namespace cleave

#endif
