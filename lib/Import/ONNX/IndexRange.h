// Bounds of computed integers, to find indices that need no run-time check.

#ifndef CLEAVE_LIB_IMPORT_ONNX_INDEXRANGE_H
#define CLEAVE_LIB_IMPORT_ONNX_INDEXRANGE_H

#include "mlir/IR/Value.h"

#include <optional>

namespace cleave::importer {

/// All elements are in [low, high].
struct IndexRange {
  int64_t low = 0, high = 0;
};

/// Returns the bounds of a value that follow from the operations that compute
/// it; nullopt if there are none, or if the value may wrap.
std::optional<IndexRange> rangeOf(mlir::Value value, unsigned depth = 0);

/// Returns whether all elements of `value` come from one graph input. `value`
/// must have all of the input's elements; with `parts`, it may have only some.
/// Such elements need no check on the device, since the host checks all inputs
/// before the program runs.
bool isInput(mlir::Value value, bool parts);

} // namespace cleave::importer

#endif
