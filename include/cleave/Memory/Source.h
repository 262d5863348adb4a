// Names operations in messages by the part of the model that they come from.

#ifndef CLEAVE_MEMORY_SOURCE_H
#define CLEAVE_MEMORY_SOURCE_H

#include "mlir/IR/Operation.h"

#include <string>

namespace cleave {

/// Returns the first name in the operation's location, without the path of the
/// model: a node of the model's graph as describeLocation prints it, or a
/// parameter. If the location has no name, returns the operation's name, such
/// as "rt.gemm".
std::string sourceOf(mlir::Operation *op);

/// Returns all names in the location of an operation, which has several if the
/// operation was merged from others: "a", "a, b", or "a and 5 others".
std::string sourcesOf(mlir::Operation *op);

} // namespace cleave

#endif
