// Registers the passes of this folder by name, for tools and tests that run
// pipelines from text. Apart from Passes.h, because it is slow to compile.

#ifndef CLEAVE_PARTITION_REGISTERPASSES_H
#define CLEAVE_PARTITION_REGISTERPASSES_H

#include "cleave/Partition/Passes.h"

namespace cleave {
#define GEN_PASS_REGISTRATION
#include "cleave/Partition/Passes.h.inc"
} // namespace cleave

#endif
