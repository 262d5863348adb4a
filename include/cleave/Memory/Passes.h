// Passes of the memory phase.

#ifndef CLEAVE_MEMORY_PASSES_H
#define CLEAVE_MEMORY_PASSES_H

#include "cleave/program.h"

#include "mlir/Pass/Pass.h"

namespace cleave {
#define GEN_PASS_DECL
#include "cleave/Memory/Passes.h.inc"
} // namespace cleave

#endif
