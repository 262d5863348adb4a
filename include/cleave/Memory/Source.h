// Names of operations for messages.

#ifndef CLEAVE_MEMORY_SOURCE_H
#define CLEAVE_MEMORY_SOURCE_H

#include "mlir/IR/Operation.h"

#include <string>

namespace cleave {

/// The first name in the operation's location (a node of the model's graph as
/// describeLocation says it, or a parameter), without the path of the model;
/// else the name of the operation, such as "rt.gemm".
std::string sourceOf(mlir::Operation *op);

/// The sources of an operation that was merged from several: "a", "a, b", "a
/// and 5 others".
std::string sourcesOf(mlir::Operation *op);

} // namespace cleave

#endif
