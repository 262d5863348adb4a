//===- Describe.h - values and axes, for people -----------------*- C++ -*-===//

#ifndef CLEAVE_PARTITION_UTILS_DESCRIBE_H
#define CLEAVE_PARTITION_UTILS_DESCRIBE_H

#include "cleave/Dialect/Dist/IR/Dist.h"

namespace cleave::partition {

/// Returns a text like "the result of math.exp", "parameter 'w'", or "argument
/// 0". For the result of a dist.constrain, describes the operand.
std::string describe(mlir::Value value);

/// Returns the axes as text, separated by commas: `x, y:(1)2`, where `y:(1)2`
/// is a sub-axis of y.
std::string describe(dist::AxisListAttr axes);

} // namespace cleave::partition

#endif
