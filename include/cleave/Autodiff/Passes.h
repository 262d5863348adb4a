// Passes that turn a model into a training program: they add the loss, its
// derivative and the optimizer.

#ifndef CLEAVE_AUTODIFF_PASSES_H
#define CLEAVE_AUTODIFF_PASSES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

namespace cleave {
#define GEN_PASS_DECL
#include "cleave/Autodiff/Passes.h.inc"

/// Reports an error for each pattern of the key train.no_decay that matches no
/// parameter of `func`, which must be the function of a whole model.
/// `nn-add-optimizer` does not check this for a single pipeline stage, because
/// a pattern may match a parameter of another stage.
mlir::LogicalResult checkNoDecay(mlir::func::FuncOp func,
                                 llvm::ArrayRef<std::string> patterns);
} // namespace cleave

#endif
