// Operations that run only under a condition.

#ifndef CLEAVE_INTERFACES_CONDITION_H
#define CLEAVE_INTERFACES_CONDITION_H

#include "llvm/ADT/StringRef.h"

namespace cleave {

/// Integer attribute of an operation that needs to run only under a condition.
/// It equals the attribute `number` of a dist.condition or rt.condition in the
/// same function. If the flag of that condition is false, the results of the
/// operation are not read, and the operation need not run (but may).
inline constexpr llvm::StringLiteral kWhenAttrName = "nn.when";

} // namespace cleave

#endif
