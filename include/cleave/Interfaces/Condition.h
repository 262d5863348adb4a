// Operations that run only under a condition.

#ifndef CLEAVE_INTERFACES_CONDITION_H
#define CLEAVE_INTERFACES_CONDITION_H

#include "llvm/ADT/StringRef.h"

namespace cleave {

/// Attribute of an operation: the number of a condition (dist.condition,
/// rt.condition) of the same function. If the condition is false, the results
/// of the operation are not read, and the operation need not run (but may).
inline constexpr llvm::StringLiteral kWhenAttrName = "nn.when";

} // namespace cleave

#endif
