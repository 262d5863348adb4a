// Registers the passes of this folder by name, for tools and tests that run
// textual pipelines. This header is separate from Passes.h, because it is slow
// to compile.

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
