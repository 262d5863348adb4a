// Passes that turn per-rank programs into kernels.

#ifndef CLEAVE_FUSION_PASSES_H
#define CLEAVE_FUSION_PASSES_H

#include "mlir/Pass/Pass.h"

namespace cleave {
#define GEN_PASS_DECL
#include "cleave/Fusion/Passes.h.inc"
} // namespace cleave

#endif
