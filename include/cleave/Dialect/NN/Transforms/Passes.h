// Passes within the nn dialect.

#ifndef CLEAVE_DIALECT_NN_TRANSFORMS_PASSES_H
#define CLEAVE_DIALECT_NN_TRANSFORMS_PASSES_H

#include "cleave/Dialect/NN/IR/NN.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

namespace cleave {
#define GEN_PASS_DECL
#include "cleave/Dialect/NN/Transforms/Passes.h.inc"
} // namespace cleave

#endif
