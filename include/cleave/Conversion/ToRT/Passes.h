// Passes from tensor operations to commands.

#ifndef CLEAVE_CONVERSION_TORT_PASSES_H
#define CLEAVE_CONVERSION_TORT_PASSES_H

#include "cleave/program.h"

#include "mlir/Pass/Pass.h"

namespace cleave {
#define GEN_PASS_DECL
#include "cleave/Conversion/ToRT/Passes.h.inc"
} // namespace cleave

#endif
