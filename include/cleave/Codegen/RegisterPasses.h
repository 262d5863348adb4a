// Makes the passes of this folder known by name, for tools and tests that run
// pipelines from text. Apart from Passes.h, as it costs whoever includes it.

#ifndef CLEAVE_CODEGEN_REGISTERPASSES_H
#define CLEAVE_CODEGEN_REGISTERPASSES_H

#include "cleave/Codegen/Passes.h"

namespace cleave {
namespace codegen {
#define GEN_PASS_REGISTRATION
#include "cleave/Codegen/Passes.h.inc"
} // namespace codegen
} // namespace cleave

#endif
