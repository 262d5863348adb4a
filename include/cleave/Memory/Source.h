// What a person knows an operation by.

#ifndef CLEAVE_MEMORY_SOURCE_H
#define CLEAVE_MEMORY_SOURCE_H

#include "mlir/IR/Operation.h"

#include "llvm/ADT/SmallVector.h"

#include <string>

namespace cleave {

/// The names in the operation's location (nodes of the model's graph,
/// parameters), each once, in order. The model's own name is none.
llvm::SmallVector<llvm::StringRef> namesOf(mlir::Operation *op);

/// The first of them; else the operation's own name.
std::string sourceOf(mlir::Operation *op);

/// The same for an operation that does the same to several things: "a", "a, b",
/// "a and 5 others".
std::string sourcesOf(mlir::Operation *op);

} // namespace cleave

#endif
