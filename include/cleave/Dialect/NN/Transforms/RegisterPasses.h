// Registers the passes of this folder by name, for tools and tests that run
// textual pipelines. The registration is not part of Passes.h, because it is
// expensive to include.

#ifndef CLEAVE_DIALECT_NN_TRANSFORMS_REGISTERPASSES_H
#define CLEAVE_DIALECT_NN_TRANSFORMS_REGISTERPASSES_H

#include "cleave/Dialect/NN/Transforms/Passes.h"

namespace cleave {
namespace nn {
#define GEN_PASS_REGISTRATION
#include "cleave/Dialect/NN/Transforms/Passes.h.inc"
} // namespace nn
} // namespace cleave

#endif
