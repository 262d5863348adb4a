// The phases of the compiler as passes, for cleave-opt.

#ifndef CLEAVE_COMPILER_PASSES_H
#define CLEAVE_COMPILER_PASSES_H

#include "mlir/Pass/Pass.h"

namespace cleave {
#define GEN_PASS_DECL
#include "cleave/Compiler/Passes.h.inc"
} // namespace cleave

#endif
