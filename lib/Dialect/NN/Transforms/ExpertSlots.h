// Rewrites sums over all experts to sums over the experts that a token chose
// (its choices, called slots in code).

#ifndef CLEAVE_LIB_DIALECT_NN_TRANSFORMS_EXPERTSLOTS_H
#define CLEAVE_LIB_DIALECT_NN_TRANSFORMS_EXPERTSLOTS_H

#include "ExpertProduct.h"

namespace cleave::nn {

/// Returns a sum over experts as a sum over the choices of each token. `shape`
/// is the shape of one term of the original sum. Returns null if a term
/// contains an operation that this rewrite does not handle; operations that
/// were already built are then unused.
mlir::Value sumBySlots(mlir::OpBuilder &builder, mlir::Location loc,
                       const ExpertProduct &product,
                       llvm::ArrayRef<int64_t> shape);

} // namespace cleave::nn

#endif
