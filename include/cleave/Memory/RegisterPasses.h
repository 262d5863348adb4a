// Registers the passes of this folder by name, for tools and tests that parse
// pass pipelines from text. This header is separate from Passes.h, because code
// that registers passes is slow to compile.

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
