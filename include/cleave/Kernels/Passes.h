// Passes that turn local programs into kernels.

#ifndef CLEAVE_KERNELS_PASSES_H
#define CLEAVE_KERNELS_PASSES_H

#include "mlir/Pass/Pass.h"

namespace cleave {
#define GEN_PASS_DECL
#include "cleave/Kernels/Passes.h.inc"

namespace kernels {
#define GEN_PASS_REGISTRATION
#include "cleave/Kernels/Passes.h.inc"
} // namespace kernels
} // namespace cleave

#endif
