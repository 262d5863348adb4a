// Checks that several verifiers of commands use.

#ifndef CLEAVE_LIB_DIALECT_RT_IR_RTVERIFY_H
#define CLEAVE_LIB_DIALECT_RT_IR_RTVERIFY_H

#include "cleave/Dialect/RT/IR/RT.h"

namespace cleave::rt {

/// Checks that the view `[offset, strides...]` has a stride for each of `sizes`
/// and stays inside the tensor.
mlir::LogicalResult verifyView(mlir::Operation *op, llvm::StringRef name,
                               llvm::ArrayRef<int64_t> view,
                               llvm::ArrayRef<int64_t> sizes,
                               mlir::Value tensor);

} // namespace cleave::rt

#endif
