// Registers the passes of this folder by name, for tools and tests that run
// pipelines from text. A header apart from Passes.h, because the registration
// of passes is slow to compile.

#ifndef CLEAVE_MEMORY_REGISTERPASSES_H
#define CLEAVE_MEMORY_REGISTERPASSES_H

#include "cleave/Memory/Passes.h"

namespace cleave {
namespace memory {
#define GEN_PASS_REGISTRATION
#include "cleave/Memory/Passes.h.inc"
} // namespace memory
} // namespace cleave

#endif
