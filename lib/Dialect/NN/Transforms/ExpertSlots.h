// Rewrites sums over experts to sums over slots.

#ifndef CLEAVE_LIB_DIALECT_NN_TRANSFORMS_EXPERTSLOTS_H
#define CLEAVE_LIB_DIALECT_NN_TRANSFORMS_EXPERTSLOTS_H

#include "ExpertProduct.h"

namespace cleave::nn {

/// The sum over the experts, in the shape of one term, computed by slots. Null
/// if an expert has an operation that this rewrite does not know; operations
/// that were built until then have no uses.
mlir::Value sumBySlots(mlir::OpBuilder &builder, mlir::Location loc,
                       const ExpertProduct &product,
                       llvm::ArrayRef<int64_t> shape);

} // namespace cleave::nn

#endif
