// Strided views of tensor values: transposes, slices, reshapes and broadcasts
// of a value as addresses in its buffer.

#ifndef CLEAVE_LIB_CONVERSION_TORT_VIEWS_H
#define CLEAVE_LIB_CONVERSION_TORT_VIEWS_H

#include "cleave/Dialect/NN/IR/NN.h"

#include <optional>

namespace cleave {

/// Element (i0, i1, ...) is at `offset + sum(i * strides)` elements in the
/// dense buffer of `base`.
struct StridedView {
  mlir::Value base;
  int64_t offset = 0;
  llvm::SmallVector<int64_t> sizes, strides;

  /// Whether the elements are contiguous and in order.
  bool isContiguous() const;
};

/// Row-major strides: [4, 6] -> [6, 1].
llvm::SmallVector<int64_t> denseStrides(llvm::ArrayRef<int64_t> shape);

/// A view of the whole value.
StridedView denseView(mlir::Value value);

/// The value as a view of the buffer that view operations derive it from.
/// Broadcasts (strides of 0) are traced through only with `throughBroadcasts`.
/// Strides are never negative.
StridedView traceView(mlir::Value value, bool throughBroadcasts = false);

/// The strides of the same elements in another shape, if it can be expressed by
/// strides: sizes [4, 6], strides [12, 1] as [4, 2, 3] -> [12, 3, 1].
std::optional<llvm::SmallVector<int64_t>>
reshapeStrides(llvm::ArrayRef<int64_t> sizes, llvm::ArrayRef<int64_t> strides,
               llvm::ArrayRef<int64_t> shape);

/// The operands of a command for the view: offset, then the strides.
llvm::SmallVector<int64_t> viewEntries(const StridedView &view);

} // namespace cleave

#endif
