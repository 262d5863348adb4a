// Bounds of computed integers, for indices that need no check.

#ifndef CLEAVE_LIB_IMPORT_ONNX_INDEXRANGE_H
#define CLEAVE_LIB_IMPORT_ONNX_INDEXRANGE_H

#include "mlir/IR/Value.h"

#include <optional>

namespace cleave::importer {

/// All elements are in [low, high].
struct IndexRange {
  int64_t low = 0, high = 0;
};

/// The bounds that follow from the operations that compute the value; nullopt
/// if there are none, or if the type may wrap.
std::optional<IndexRange> rangeOf(mlir::Value value, unsigned depth = 0);

/// Whether the elements are those of an input, as a whole or with `parts` also
/// some of them. The host checks them before anything runs, all where they are
/// whole.
bool isInput(mlir::Value value, bool parts);

} // namespace cleave::importer

#endif
