// Registers the passes of this folder by name, for tools and tests that run
// textual pipelines. This header is separate from Passes.h, because it is slow
// to compile.

#ifndef CLEAVE_COMPILER_REGISTERPASSES_H
#define CLEAVE_COMPILER_REGISTERPASSES_H

#include "cleave/Compiler/Passes.h"

namespace cleave {
namespace compiler {
#define GEN_PASS_REGISTRATION
#include "cleave/Compiler/Passes.h.inc"
} // namespace compiler
} // namespace cleave

#endif
