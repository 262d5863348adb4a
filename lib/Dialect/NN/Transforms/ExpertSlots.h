// Rewrites sums over all experts as sums over slots, that is, over the experts
// that a token chose.

#ifndef CLEAVE_LIB_DIALECT_NN_TRANSFORMS_EXPERTSLOTS_H
#define CLEAVE_LIB_DIALECT_NN_TRANSFORMS_EXPERTSLOTS_H

#include "ExpertProduct.h"

namespace cleave::nn {

/// Returns the sum over experts as a sum over slots, in the shape `shape` of
/// one term of the original sum. Returns null if the term of an expert has an
/// operation that this rewrite does not handle; operations that were built
/// before are then unused.
mlir::Value sumBySlots(mlir::OpBuilder &builder, mlir::Location loc,
                       const ExpertProduct &product,
                       llvm::ArrayRef<int64_t> shape);

} // namespace cleave::nn

#endif
