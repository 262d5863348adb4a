// Operations that run under a condition alone.

#ifndef CLEAVE_INTERFACES_CONDITION_H
#define CLEAVE_INTERFACES_CONDITION_H

#include "llvm/ADT/StringRef.h"

namespace cleave {

/// The number of a condition (dist.condition, rt.condition) of the same
/// function: where it does not hold, what the operation gives is not read, and
/// it need not run. It may run anyway.
inline constexpr llvm::StringLiteral kWhenAttrName = "nn.when";

} // namespace cleave

#endif
