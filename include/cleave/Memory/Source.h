// What a person knows an operation by.

#ifndef CLEAVE_MEMORY_SOURCE_H
#define CLEAVE_MEMORY_SOURCE_H

#include "mlir/IR/Operation.h"

#include <string>

namespace cleave {

/// The name in the operation's location (a node of the model's graph), the
/// first where several were fused; else the operation's own name.
std::string sourceOf(mlir::Operation *op);

/// The name in a location; empty if it has none.
std::string nameInLocation(mlir::Location location);

} // namespace cleave

#endif
