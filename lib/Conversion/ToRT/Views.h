// Strided views of tensor values, which describe transposes, slices, reshapes
// and broadcasts as addresses in the buffer of the original value.

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

  /// Returns whether the elements are contiguous and in order.
  bool isContiguous() const;
};

/// Row-major strides: [4, 6] -> [6, 1].
llvm::SmallVector<int64_t> denseStrides(llvm::ArrayRef<int64_t> shape);

/// Returns a view of the whole value.
StridedView denseView(mlir::Value value);

/// Traces a value back through slices, transposes and similar operations that
/// only select or rearrange elements, and returns it as a view of the first
/// operation's operand. Broadcasts (strides of 0) are only traced if
/// `throughBroadcasts` is true. Strides are never negative.
StridedView traceView(mlir::Value value, bool throughBroadcasts = false);

/// Returns the strides with which a view's elements have the shape `shape`
/// instead of `sizes`, or nullopt if no strides express this shape. For
/// example, sizes [4, 6] with strides [12, 1] become strides [12, 3, 1] for
/// shape [4, 2, 3].
std::optional<llvm::SmallVector<int64_t>>
reshapeStrides(llvm::ArrayRef<int64_t> sizes, llvm::ArrayRef<int64_t> strides,
               llvm::ArrayRef<int64_t> shape);

/// Returns the view in the form of a command's attribute: the offset, then the
/// strides.
llvm::SmallVector<int64_t> viewEntries(const StridedView &view);

} // namespace cleave

#endif
