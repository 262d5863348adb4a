// Passes that cut a model into the stages of a pipeline.

#ifndef CLEAVE_STAGE_PASSES_H
#define CLEAVE_STAGE_PASSES_H

#include "mlir/Pass/Pass.h"

namespace cleave {
#define GEN_PASS_DECL
#include "cleave/Stage/Passes.h.inc"
} // namespace cleave

#endif
