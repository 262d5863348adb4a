// Passes of the train phase: loss, derivative, optimizer.

#ifndef CLEAVE_AUTODIFF_PASSES_H
#define CLEAVE_AUTODIFF_PASSES_H

#include "mlir/Pass/Pass.h"

namespace cleave {
#define GEN_PASS_DECL
#include "cleave/Autodiff/Passes.h.inc"

namespace autodiff {
#define GEN_PASS_REGISTRATION
#include "cleave/Autodiff/Passes.h.inc"
} // namespace autodiff
} // namespace cleave

#endif
