// Registers the passes of this folder by name, for tools and tests that run
// pipelines from text. A header apart from Passes.h, because the registration
// of passes is slow to compile.

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
