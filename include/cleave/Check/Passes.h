// Passes of `cleave check`: widening to f64 and injected faults.

#ifndef CLEAVE_CHECK_PASSES_H
#define CLEAVE_CHECK_PASSES_H

#include "mlir/Pass/Pass.h"

namespace cleave {
#define GEN_PASS_DECL
#include "cleave/Check/Passes.h.inc"
} // namespace cleave

#endif
