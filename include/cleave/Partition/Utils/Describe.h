//===- Describe.h - values and axes, for people -----------------*- C++ -*-===//

#ifndef CLEAVE_PARTITION_UTILS_DESCRIBE_H
#define CLEAVE_PARTITION_UTILS_DESCRIBE_H

#include "cleave/Dialect/Dist/IR/Dist.h"

namespace cleave::partition {

/// Text like "the result of math.exp", "parameter 'w'", or "argument 0".
/// Constraints are looked through.
std::string describe(mlir::Value value);

/// Text like "x", "y":(1)2.
std::string describe(dist::AxisListAttr axes);

} // namespace cleave::partition

#endif
