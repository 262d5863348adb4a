// Registers the passes of this folder by name, for tools and tests that parse
// pass pipelines from text. This header is separate from Passes.h, because code
// that registers passes is slow to compile.

#ifndef CLEAVE_PARTITION_REGISTERPASSES_H
#define CLEAVE_PARTITION_REGISTERPASSES_H

#include "cleave/Partition/Passes.h"

namespace cleave {
#define GEN_PASS_REGISTRATION
#include "cleave/Partition/Passes.h.inc"
} // namespace cleave

#endif
