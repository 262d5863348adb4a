// Registers the passes of this folder by name, for tools and tests that run
// textual pipelines. This header is separate from Passes.h, since it is slow to
// compile.

#ifndef CLEAVE_PARTITION_REGISTERPASSES_H
#define CLEAVE_PARTITION_REGISTERPASSES_H

#include "cleave/Partition/Passes.h"

namespace cleave {
#define GEN_PASS_REGISTRATION
#include "cleave/Partition/Passes.h.inc"
} // namespace cleave

#endif
