// Passes of the train phase: loss, derivative, optimizer.

#ifndef CLEAVE_AUTODIFF_PASSES_H
#define CLEAVE_AUTODIFF_PASSES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

namespace cleave {
#define GEN_PASS_DECL
#include "cleave/Autodiff/Passes.h.inc"

/// Reports, for a whole model, patterns of train.no_decay that match no
/// parameter of the function. `nn-add-optimizer` does not check this for a
/// single pipeline stage, since the match may be in another stage.
mlir::LogicalResult checkNoDecay(mlir::func::FuncOp func,
                                 llvm::ArrayRef<std::string> patterns);
} // namespace cleave

#endif
