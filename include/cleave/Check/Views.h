// Converts tensors between their shape in the model file and their shape in the
// program (attribute `nn.view`).

#ifndef CLEAVE_CHECK_VIEWS_H
#define CLEAVE_CHECK_VIEWS_H

#include "cleave/Check/Engine.h"

namespace cleave::check {

/// Returns the argument attributes of the parameter of `module` with this name;
/// null if there is no such parameter.
mlir::DictionaryAttr parameterOf(mlir::ModuleOp module, llvm::StringRef name);

/// Returns the view (`nn.view`) of `port`, an argument or result of the
/// program: the shape in which the program uses a tensor of the model file. A
/// gradient, an optimizer state, or a tap (a result that a check adds to the
/// program) has the view of the parameter of `module` to which it belongs.
/// Returns null if the file and the program use the same layout.
nn::ViewAttr viewOf(mlir::ModuleOp module, const Port &port);

/// Converts a tensor from the file's layout to the program's layout; the second
/// function is the inverse. Both are the identity for a null view.
Tensor seenThrough(nn::ViewAttr view, const Tensor &stored);
Tensor asStored(nn::ViewAttr view, const Tensor &seen);

} // namespace cleave::check

#endif
