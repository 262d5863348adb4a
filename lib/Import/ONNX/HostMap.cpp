// Elementwise evaluation of host tensors.

#include "Build.h"

using llvm::ArrayRef;

namespace cleave::importer {

/// Returns the broadcast shape of the operands. Dimensions along which all
/// operands repeat their elements are then removed: `views` gets the operands
/// without these dimensions, and `live` the remaining shape.
static llvm::Expected<Shape> prepare(ArrayRef<const HostTensor *> operands,
                                     llvm::SmallVectorImpl<HostTensor> &views,
                                     Shape &live) {
  Shape shape;
  for (const HostTensor *operand : operands) {
    llvm::Expected<Shape> joined = broadcastShapes(shape, operand->shape());
    if (!joined)
      return joined.takeError();
    shape = *joined;
  }
  for (const HostTensor *operand : operands)
    views.push_back(operand->broadcastTo(shape));
  live = shape;
  for (size_t dim = 0; dim < shape.size(); ++dim)
    if (llvm::all_of(views, [&](const HostTensor &view) {
          return view.strides()[dim] == 0;
        }))
      live[dim] = std::min<int64_t>(shape[dim], 1);
  if (product(live) > HostTensor::kMaxElements)
    return reason("a constant of shape " + spell(shape) +
                  " is too large to evaluate");
  return shape;
}

template <class Value, class Function, class Read, class Write>
static llvm::Expected<HostTensor>
map(Element type, ArrayRef<const HostTensor *> operands, Function function,
    Read read, Write write) {
  llvm::SmallVector<HostTensor, 3> views;
  Shape live;
  llvm::Expected<Shape> shape = prepare(operands, views, live);
  if (!shape)
    return shape.takeError();
  llvm::SmallVector<const HostTensor *, 3> pointers;
  for (const HostTensor &view : views)
    pointers.push_back(&view);
  HostTensor result(type, live);
  llvm::SmallVector<Value, 3> values(views.size());
  int64_t next = 0;
  forEach(pointers, live, [&](const int64_t *at) {
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = read(views[i], at[i]);
    write(result, next++, function(values.data()));
  });
  return result.broadcastTo(*shape);
}

llvm::Expected<HostTensor>
mapInts(Element type, ArrayRef<const HostTensor *> operands,
        llvm::function_ref<int64_t(const int64_t *)> function) {
  return map<int64_t>(
      type, operands, function,
      [](const HostTensor &tensor, int64_t at) { return tensor.intAt(at); },
      [](HostTensor &tensor, int64_t at, int64_t value) {
        tensor.setInt(at, value);
      });
}

llvm::Expected<HostTensor>
mapUnsigned(Element type, ArrayRef<const HostTensor *> operands,
            llvm::function_ref<uint64_t(const uint64_t *)> function) {
  return map<uint64_t>(
      type, operands, function,
      [](const HostTensor &tensor, int64_t at) { return tensor.intAt(at); },
      [](HostTensor &tensor, int64_t at, uint64_t value) {
        tensor.setInt(at, static_cast<int64_t>(value));
      });
}

llvm::Expected<HostTensor>
mapFloats(Element type, ArrayRef<const HostTensor *> operands,
          llvm::function_ref<double(const double *)> function) {
  return map<double>(
      type, operands, function,
      [](const HostTensor &tensor, int64_t at) { return tensor.floatAt(at); },
      [](HostTensor &tensor, int64_t at, double value) {
        tensor.setFloat(at, value);
      });
}

} // namespace cleave::importer
