// What a person knows an operation by.

#ifndef CLEAVE_MEMORY_SOURCE_H
#define CLEAVE_MEMORY_SOURCE_H

#include "mlir/IR/Operation.h"

#include <string>

namespace cleave {

/// The first name in the operation's location (a node of the model's graph as
/// describeLocation says it, a parameter); else the operation's own name. The
/// model's path is none.
std::string sourceOf(mlir::Operation *op);

/// The same for an operation that does the same to several things: "a", "a, b",
/// "a and 5 others".
std::string sourcesOf(mlir::Operation *op);

} // namespace cleave

#endif
