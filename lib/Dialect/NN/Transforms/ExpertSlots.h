// Sums over experts, rewritten to slots.

#ifndef CLEAVE_LIB_DIALECT_NN_TRANSFORMS_EXPERTSLOTS_H
#define CLEAVE_LIB_DIALECT_NN_TRANSFORMS_EXPERTSLOTS_H

#include "ExpertProduct.h"

namespace cleave::nn {

/// The sum over the experts, of the shape of one term, computed
/// by slots. Null where a step of the experts is not among those that are
/// served; what was built until then has no uses.
mlir::Value sumBySlots(mlir::OpBuilder &builder, mlir::Location loc,
                       const ExpertProduct &product,
                       llvm::ArrayRef<int64_t> shape);

} // namespace cleave::nn

#endif
