// Makes the passes of this folder known by name, for tools and tests that run
// pipelines from text. Apart from Passes.h, as it costs whoever includes it.

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
