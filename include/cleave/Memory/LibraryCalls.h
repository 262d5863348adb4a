// Library commands as the runtime's descriptors, without addresses.

#ifndef CLEAVE_MEMORY_LIBRARYCALLS_H
#define CLEAVE_MEMORY_LIBRARYCALLS_H

#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/program.h"

namespace cleave {

/// The runtime's name of an element type; failure for types that it does not
/// have.
mlir::FailureOr<program::DType> dtypeOf(mlir::Type element);

/// Sizes, strides and epilogue. Offsets of views are left to the caller.
program::Gemm describe(rt::GemmOp op);
program::GroupedGemm describe(rt::GroupedGemmOp op);
program::Attention describe(rt::AttentionOp op);
program::Attention describe(rt::AttentionGradOp op);
program::Convolution describe(rt::ConvOp op);

} // namespace cleave

#endif
