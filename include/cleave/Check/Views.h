// Tensors as the file stores them and as the program sees them (`nn.view`).

#ifndef CLEAVE_CHECK_VIEWS_H
#define CLEAVE_CHECK_VIEWS_H

#include "cleave/Check/Engine.h"

namespace cleave::check {

/// Attributes of the parameter of `module` with that name; null without one.
mlir::DictionaryAttr parameterOf(mlir::ModuleOp module, llvm::StringRef name);

/// The view of a port: its own, or, for a gradient, tap or state, that of its
/// parameter in `module`. Null if file and program see the same shape.
nn::ViewAttr viewOf(mlir::ModuleOp module, const Port &port);

/// The file's tensor as the program sees it, and the inverse. The identity
/// for a null view.
Tensor seenThrough(nn::ViewAttr view, const Tensor &stored);
Tensor asStored(nn::ViewAttr view, const Tensor &seen);

} // namespace cleave::check

#endif
