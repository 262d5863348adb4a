// Strided views of tensor values: what transposes, slices, reshapes and
// broadcasts of a value mean as addresses in its buffer.

#ifndef CLEAVE_LIB_CONVERSION_TORT_VIEWS_H
#define CLEAVE_LIB_CONVERSION_TORT_VIEWS_H

#include "cleave/Dialect/NN/IR/NN.h"

#include <optional>

namespace cleave {

/// Element (i0, i1, ...) lies `offset + sum(i * strides)` elements into the
/// dense buffer of `base`.
struct StridedView {
  mlir::Value base;
  int64_t offset = 0;
  llvm::SmallVector<int64_t> sizes, strides;

  /// The elements lie end to end, in order.
  bool isContiguous() const;
};

/// Row-major strides: [4, 6] -> [6, 1].
llvm::SmallVector<int64_t> denseStrides(llvm::ArrayRef<int64_t> shape);

/// The value's own buffer.
StridedView denseView(mlir::Value value);

/// The value as a view of the buffer that placements take it from. Broadcasts
/// (strides of 0) are looked through only with `throughBroadcasts`; strides are
/// never negative.
StridedView traceView(mlir::Value value, bool throughBroadcasts = false);

/// Strides under another shape of the same elements, if strides can say it:
/// sizes [4, 6], strides [12, 1] as [4, 2, 3] -> [12, 3, 1].
std::optional<llvm::SmallVector<int64_t>>
reshapeStrides(llvm::ArrayRef<int64_t> sizes, llvm::ArrayRef<int64_t> strides,
               llvm::ArrayRef<int64_t> shape);

/// The view's entries for a command: offset, then the strides.
llvm::SmallVector<int64_t> viewEntries(const StridedView &view);

} // namespace cleave

#endif
