// Converts library calls of the rt dialect to the runtime's descriptors, which
// do not contain the addresses of operands yet.

#ifndef CLEAVE_MEMORY_LIBRARYCALLS_H
#define CLEAVE_MEMORY_LIBRARYCALLS_H

#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/program.h"

namespace cleave {

/// Returns the runtime's data type for an element type; fails for types that
/// the runtime does not support.
mlir::FailureOr<program::DType> dtypeOf(mlir::Type element);

/// Return the runtime's descriptor of a library call, with sizes, strides and
/// epilogue. If an operand is a view, the caller sets its offset.
program::Gemm describe(rt::GemmOp op);
program::GroupedGemm describe(rt::GroupedGemmOp op);
program::Attention describe(rt::AttentionOp op);
program::Attention describe(rt::AttentionGradOp op);
program::Convolution describe(rt::ConvOp op);

/// Attaches LibraryCallOpInterface to the library calls of the rt dialect.
void registerLibraryCalls(mlir::DialectRegistry &registry);

} // namespace cleave

#endif
