// Names of operations for messages.

#ifndef CLEAVE_MEMORY_SOURCE_H
#define CLEAVE_MEMORY_SOURCE_H

#include "mlir/IR/Operation.h"

#include <string>

namespace cleave {

/// Returns the first name in the operation's location (a node of the model's
/// graph as printed by describeLocation, or a parameter), without the path of
/// the model. If the location has no name, returns the operation's name, such
/// as "rt.gemm".
std::string sourceOf(mlir::Operation *op);

/// Returns the sources of an operation that may be merged from several
/// operations: "a", "a, b", "a and 5 others".
std::string sourcesOf(mlir::Operation *op);

} // namespace cleave

#endif
