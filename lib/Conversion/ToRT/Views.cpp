// Strided views of tensor values.

#include "Views.h"

#include "cleave/Support/ValueUtils.h"

using namespace mlir;
using namespace cleave;

SmallVector<int64_t> cleave::denseStrides(ArrayRef<int64_t> shape) {
  SmallVector<int64_t> strides(shape.size(), 1);
  for (size_t dim = shape.size(); dim-- > 1;)
    strides[dim - 1] = strides[dim] * shape[dim];
  return strides;
}

bool StridedView::isContiguous() const {
  int64_t expected = 1;
  for (size_t dim = sizes.size(); dim-- > 0;) {
    if (sizes[dim] != 1 && strides[dim] != expected)
      return false;
    expected *= sizes[dim];
  }
  return true;
}

StridedView cleave::denseView(Value value) {
  ArrayRef<int64_t> shape = shapeOf(value);
  return {value, 0, SmallVector<int64_t>(shape), denseStrides(shape)};
}

std::optional<SmallVector<int64_t>>
cleave::reshapeStrides(ArrayRef<int64_t> sizes, ArrayRef<int64_t> strides,
                       ArrayRef<int64_t> shape) {
  SmallVector<int64_t> result(shape.size(), 1);
  size_t from = 0, to = 0;
  while (to < shape.size() || from < sizes.size()) {
    // Takes the smallest group of consecutive dimensions of the view and the
    // smallest group of consecutive dimensions of `shape` that have the same
    // number of elements.
    size_t fromEnd = from, toEnd = to;
    int64_t have = 1, want = 1;
    do {
      if (have <= want && fromEnd < sizes.size())
        have *= sizes[fromEnd++];
      else if (toEnd < shape.size())
        want *= shape[toEnd++];
      else
        break;
    } while (have != want || toEnd == to || fromEnd == from);
    if (have != want) {
      // Dimensions that remain in only one of the two shapes must all have size
      // 1.
      while (fromEnd < sizes.size())
        have *= sizes[fromEnd++];
      while (toEnd < shape.size())
        want *= shape[toEnd++];
      if (have != want)
        return std::nullopt;
    }
    // The view's dimensions in a group must be contiguous, so that the
    // dimensions of `shape` can divide them.
    int64_t stride = 1;
    bool first = true;
    int64_t expected = 0;
    for (size_t dim = fromEnd; dim-- > from;) {
      if (sizes[dim] == 1)
        continue;
      if (first)
        stride = strides[dim];
      else if (strides[dim] != expected)
        return std::nullopt;
      first = false;
      expected = strides[dim] * sizes[dim];
    }
    for (size_t dim = toEnd; dim-- > to;) {
      result[dim] = stride;
      stride *= shape[dim];
    }
    from = fromEnd;
    to = toEnd;
  }
  return result;
}

StridedView cleave::traceView(Value value, bool throughBroadcasts) {
  Operation *def = value.getDefiningOp();
  if (!def)
    return denseView(value);
  auto source = [&] {
    return traceView(def->getOperand(0), throughBroadcasts);
  };
  if (isa<nn::SaveOp>(def))
    return source();
  if (auto transpose = dyn_cast<nn::TransposeOp>(def)) {
    StridedView from = source(), view{from.base, from.offset, {}, {}};
    for (int64_t dim : transpose.getPermutation()) {
      view.sizes.push_back(from.sizes[dim]);
      view.strides.push_back(from.strides[dim]);
    }
    return view;
  }
  if (auto slice = dyn_cast<nn::SliceOp>(def)) {
    if (llvm::any_of(slice.getStrides(), [](int64_t step) { return step < 0; }))
      return denseView(value);
    StridedView view = source();
    for (auto [dim, size] : llvm::enumerate(slice.getSizes())) {
      view.offset += slice.getOffsets()[dim] * view.strides[dim];
      view.strides[dim] *= slice.getStrides()[dim];
      view.sizes[dim] = size;
    }
    return view;
  }
  if (auto reshape = dyn_cast<nn::ReshapeOp>(def)) {
    StridedView view = source();
    ArrayRef<int64_t> shape = shapeOf(value);
    auto strides = reshapeStrides(view.sizes, view.strides, shape);
    if (!strides)
      return denseView(value);
    return {view.base, view.offset, SmallVector<int64_t>(shape), *strides};
  }
  if (auto broadcast = dyn_cast<nn::BroadcastOp>(def);
      broadcast && throughBroadcasts) {
    StridedView from = source();
    ArrayRef<int64_t> shape = shapeOf(value);
    StridedView view{from.base, from.offset, SmallVector<int64_t>(shape),
                     SmallVector<int64_t>(shape.size(), 0)};
    for (auto [index, dim] : llvm::enumerate(broadcast.getDims()))
      view.strides[dim] = from.strides[index];
    return view;
  }
  return denseView(value);
}

SmallVector<int64_t> cleave::viewEntries(const StridedView &view) {
  SmallVector<int64_t> entries = {view.offset};
  llvm::append_range(entries, view.strides);
  return entries;
}
