// Indices into a split dimension: what gathers, scatters and products with
// chosen matrices share.

#ifndef CLEAVE_LIB_INTERFACES_SHARDING_LOOKUP_H
#define CLEAVE_LIB_INTERFACES_SHARDING_LOOKUP_H

#include "Model.h"

namespace cleave::sharding {

/// Indices relative to the tile of `factor`; the indices themselves where it is
/// whole. Those of other tiles are outside of this one, or on its padding.
mlir::Value shifted(LocalPlan &plan, mlir::Value indices, int64_t factor);

/// The same for an operation that reads by index: none is on padding.
mlir::Value inTile(LocalPlan &plan, mlir::Value indices, int64_t factor);

} // namespace cleave::sharding

#endif
