// Describes the data movement of collectives of the dist dialect.

#ifndef CLEAVE_LIB_CONVERSION_TORT_COLLECTIVEPATTERN_H
#define CLEAVE_LIB_CONVERSION_TORT_COLLECTIVEPATTERN_H

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/RT/IR/RT.h"

#include <array>
#include <vector>

namespace cleave {

/// The data movement of a collective. `layouts` has an entry for each operand.
struct CollectivePattern {
  rt::CollectiveKind kind;
  rt::Reduce reduce = rt::Reduce::Sum;
  llvm::SmallVector<std::array<int64_t, 4>> layouts;
  llvm::SmallVector<int64_t> sources;
  std::vector<program::Exchange> exchanges;
};

/// Returns the pattern of a collective among `members` ranks. Fails if the
/// runtime has no command for it.
mlir::FailureOr<CollectivePattern>
patternOf(dist::CollectiveOpInterface op, dist::MeshAttr mesh, int64_t members);

} // namespace cleave

#endif
