// Indices into a split dimension, for gathers, scatters and grouped products.

#ifndef CLEAVE_LIB_INTERFACES_SHARDING_LOOKUP_H
#define CLEAVE_LIB_INTERFACES_SHARDING_LOOKUP_H

#include "Model.h"

namespace cleave::sharding {

/// Returns indices relative to the tile of `factor`, or `indices` if the factor
/// is not split. Indices into other tiles are then out of range or in the
/// tile's padding.
mlir::Value shifted(LocalPlan &plan, mlir::Value indices, int64_t factor);

/// Returns indices relative to the tile of `factor`, like `shifted`. It is for
/// operations that read the indexed tensor, so none of these indices points to
/// padding of the tile.
mlir::Value inTile(LocalPlan &plan, mlir::Value indices, int64_t factor);

} // namespace cleave::sharding

#endif
