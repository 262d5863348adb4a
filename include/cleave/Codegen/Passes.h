// Passes that turn kernels into code.

#ifndef CLEAVE_CODEGEN_PASSES_H
#define CLEAVE_CODEGEN_PASSES_H

#include "mlir/Pass/Pass.h"

namespace cleave {
#define GEN_PASS_DECL
#include "cleave/Codegen/Passes.h.inc"
} // namespace cleave

#endif
