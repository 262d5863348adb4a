// Strided host tensors and elementwise evaluation.

#include "HostTensor.h"
#include "Build.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>

using namespace mlir;
using llvm::ArrayRef;
using llvm::Twine;

namespace cleave::importer {

int64_t product(ArrayRef<int64_t> shape) {
  int64_t count = 1;
  bool overflows = false;
  for (int64_t size : shape) {
    if (size == 0)
      return 0;
    overflows |= llvm::MulOverflow(count, size, count);
  }
  return overflows ? std::numeric_limits<int64_t>::max() : count;
}

llvm::Expected<Shape> broadcastShapes(ArrayRef<int64_t> a,
                                      ArrayRef<int64_t> b) {
  Shape shape(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < shape.size(); ++i) {
    int64_t left = i < a.size() ? a[a.size() - 1 - i] : 1;
    int64_t right = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (left != right && left != 1 && right != 1)
      return reason("shapes " + spell(a) + " and " + spell(b) +
                    " do not broadcast");
    shape[shape.size() - 1 - i] = left == 1 ? right : left;
  }
  return shape;
}

static Shape rowMajorStrides(ArrayRef<int64_t> shape) {
  Shape strides(shape.size(), 1);
  for (int64_t i = int64_t(shape.size()) - 2; i >= 0; --i)
    strides[i] = strides[i + 1] * shape[i + 1];
  return strides;
}

static thread_local int64_t storedElements = 0;

int64_t HostTensor::stored() { return storedElements; }

HostTensor::HostTensor(Element type, ArrayRef<int64_t> shape)
    : element(type), dims(shape), steps(rowMajorStrides(shape)),
      buffer(std::make_shared<Buffer>()) {
  int64_t count = product(shape);
  storedElements += count;
  if (type == Element::Bool)
    buffer->bools.resize(count);
  else if (isFloat(type))
    buffer->floats.resize(count);
  else
    buffer->ints.resize(count);
}

std::string HostTensor::identity() const {
  constexpr int64_t small = 16;
  std::string text;
  auto add = [&](const auto &value) {
    text.append(reinterpret_cast<const char *>(&value), sizeof(value));
  };
  add(element);
  add(dims.size());
  for (int64_t size : dims)
    add(size);
  const bool isSmall = size() <= small;
  add(isSmall);
  if (isSmall && holdsFloats()) {
    for (double value : floats())
      add(value);
  } else if (isSmall) {
    for (int64_t value : ints())
      add(value);
  } else {
    add(buffer.get());
    add(base);
    for (int64_t step : steps)
      add(step);
  }
  return text;
}

HostTensor HostTensor::splat(Element type, ArrayRef<int64_t> shape,
                             double value) {
  HostTensor scalar(type, {});
  scalar.setFloat(0, value);
  return scalar.broadcastTo(shape);
}

HostTensor HostTensor::ofInts(ArrayRef<int64_t> values, Element type) {
  HostTensor tensor(type, {int64_t(values.size())});
  for (auto [index, value] : llvm::enumerate(values))
    tensor.setInt(index, value);
  return tensor;
}

HostTensor HostTensor::ofInt(int64_t value, Element type) {
  HostTensor tensor(type, {});
  tensor.setInt(0, value);
  return tensor;
}

void forEach(ArrayRef<const HostTensor *> tensors, ArrayRef<int64_t> shape,
             llvm::function_ref<void(const int64_t *)> body) {
  int64_t count = product(shape), rank = shape.size();
  if (count == 0)
    return;
  llvm::SmallVector<int64_t, 4> position;
  for (const HostTensor *tensor : tensors)
    position.push_back(tensor->base);
  Shape index(shape.size(), 0);
  for (int64_t n = 0;;) {
    body(position.data());
    if (++n == count)
      return;
    for (int64_t dim = rank - 1; dim >= 0; --dim) {
      ++index[dim];
      bool wraps = index[dim] == shape[dim];
      int64_t steps = wraps ? 1 - shape[dim] : 1;
      for (auto [at, tensor] : llvm::zip(position, tensors))
        at += steps * tensor->steps[dim];
      if (!wraps)
        break;
      index[dim] = 0;
    }
  }
}

int64_t HostTensor::positionOf(ArrayRef<int64_t> index) const {
  int64_t position = base;
  for (auto [i, step] : llvm::zip(index, steps))
    position += i * step;
  return position;
}

llvm::SmallVector<int64_t> HostTensor::ints() const {
  llvm::SmallVector<int64_t> values;
  values.reserve(size());
  forEach(this, dims, [&](const int64_t *at) { values.push_back(intAt(*at)); });
  return values;
}

llvm::SmallVector<double> HostTensor::floats() const {
  llvm::SmallVector<double> values;
  values.reserve(size());
  forEach(this, dims,
          [&](const int64_t *at) { values.push_back(floatAt(*at)); });
  return values;
}

Shape HostTensor::liveDims() const {
  Shape live;
  for (int64_t dim = 0; dim < rank(); ++dim)
    if (steps[dim] != 0 && dims[dim] != 1)
      live.push_back(dim);
  return live;
}

HostTensor HostTensor::compact() const {
  HostTensor result(element, dims);
  int64_t next = 0;
  forEach(this, dims, [&](const int64_t *at) {
    if (holdsFloats())
      result.buffer->floats[next++] = buffer->floats[*at];
    else
      result.setInt(next++, intAt(*at));
  });
  return result;
}

/// Zeros of different signs compare as different, all NaNs as equal.
static bool isSame(double a, double b) {
  return (a == b && std::signbit(a) == std::signbit(b)) ||
         (std::isnan(a) && std::isnan(b));
}

HostTensor HostTensor::compressed() const {
  if (size() == 0)
    return *this;
  // Elements that repeat along a dimension are stored, and compared, once.
  HostTensor view = *this;
  for (int64_t dim = 0; dim < rank(); ++dim) {
    if (view.steps[dim] == 0 || dims[dim] == 1) {
      view.steps[dim] = 0;
      view.dims[dim] = 1;
    }
  }
  for (int64_t dim = 0; dim < rank(); ++dim) {
    if (view.dims[dim] == 1)
      continue;
    HostTensor first = view;
    first.dims[dim] = 1;
    bool repeats = true;
    for (int64_t i = 1; i < view.dims[dim] && repeats; ++i) {
      HostTensor other = first;
      other.base += i * view.steps[dim];
      forEach({&first, &other}, first.dims, [&](const int64_t *at) {
        repeats &= holdsFloats()
                       ? isSame(buffer->floats[at[0]], buffer->floats[at[1]])
                       : intAt(at[0]) == intAt(at[1]);
      });
    }
    if (repeats) {
      view.steps[dim] = 0;
      view.dims[dim] = 1;
    }
  }
  HostTensor small = view.compact();
  return small.broadcastTo(dims);
}

bool HostTensor::isSplat() const {
  if (size() == 0)
    return false;
  bool equal = true;
  HostTensor view = *this;
  for (int64_t dim = 0; dim < rank(); ++dim)
    if (steps[dim] == 0)
      view.dims[dim] = 1;
  forEach(&view, view.dims, [&](const int64_t *at) {
    equal &= holdsFloats() ? isSame(buffer->floats[base], buffer->floats[*at])
                           : intAt(*at) == intAt(base);
  });
  return equal;
}

HostTensor HostTensor::transposed(ArrayRef<int64_t> permutation) const {
  HostTensor result = *this;
  for (auto [index, dim] : llvm::enumerate(permutation)) {
    result.dims[index] = dims[dim];
    result.steps[index] = steps[dim];
  }
  return result;
}

HostTensor HostTensor::sliced(ArrayRef<int64_t> offsets,
                              ArrayRef<int64_t> sizes,
                              ArrayRef<int64_t> strides) const {
  HostTensor result = *this;
  for (size_t dim = 0; dim < dims.size(); ++dim) {
    result.base += offsets[dim] * steps[dim];
    result.dims[dim] = sizes[dim];
    result.steps[dim] = steps[dim] * strides[dim];
  }
  return result;
}

HostTensor HostTensor::broadcastTo(ArrayRef<int64_t> shape) const {
  HostTensor result = *this;
  result.dims.assign(shape.begin(), shape.end());
  result.steps.assign(shape.size(), 0);
  size_t lead = shape.size() - dims.size();
  for (size_t dim = 0; dim < dims.size(); ++dim)
    if (dims[dim] == shape[lead + dim] && dims[dim] != 1)
      result.steps[lead + dim] = steps[dim];
  return result;
}

static Shape withoutOnes(ArrayRef<int64_t> shape) {
  Shape sizes;
  llvm::copy_if(shape, std::back_inserter(sizes),
                [](int64_t size) { return size != 1; });
  return sizes;
}

bool HostTensor::isReshapedInPlace(ArrayRef<int64_t> shape) const {
  return liveDims().empty() || steps == rowMajorStrides(dims) ||
         withoutOnes(dims) == withoutOnes(shape);
}

HostTensor HostTensor::reshaped(ArrayRef<int64_t> shape) const {
  HostTensor result = *this;
  if (liveDims().empty() && size() > 0) {
    result.dims.assign(shape.begin(), shape.end());
    result.steps.assign(shape.size(), 0);
    return result;
  }
  // A dimension with stride 0 keeps this stride if the reshape only adds or
  // removes dimensions of size 1.
  Shape haveSteps;
  for (auto [size, step] : llvm::zip(dims, steps))
    if (size != 1)
      haveSteps.push_back(step);
  if (withoutOnes(dims) == withoutOnes(shape)) {
    result.dims.assign(shape.begin(), shape.end());
    result.steps.clear();
    size_t next = 0;
    for (int64_t size : shape)
      result.steps.push_back(size == 1 ? 0 : haveSteps[next++]);
    return result;
  }
  if (steps != rowMajorStrides(dims))
    result = compact();
  result.dims.assign(shape.begin(), shape.end());
  result.steps = rowMajorStrides(shape);
  return result;
}

HostTensor HostTensor::cast(Element type) const {
  HostTensor view = *this;
  for (int64_t dim = 0; dim < rank(); ++dim)
    if (steps[dim] == 0)
      view.dims[dim] = std::min<int64_t>(dims[dim], 1);
  HostTensor result(type, view.dims);
  int64_t next = 0;
  forEach(&view, view.dims,
          [&](const int64_t *at) { result.setFrom(next++, *this, *at); });
  return result.broadcastTo(dims);
}

DenseElementsAttr HostTensor::toAttr(MLIRContext *context) const {
  Type type = toType(element, context);
  auto tensorType = RankedTensorType::get(dims, type);
  if (size() > 0 && isSplat()) {
    if (holdsFloats())
      return DenseElementsAttr::get(
          tensorType,
          ArrayRef<Attribute>(FloatAttr::get(type, buffer->floats[base])));
    return DenseElementsAttr::get(
        tensorType, ArrayRef<Attribute>(IntegerAttr::get(type, intAt(base))));
  }
  llvm::SmallVector<Attribute> values;
  forEach(this, dims, [&](const int64_t *at) {
    if (holdsFloats())
      values.push_back(FloatAttr::get(type, buffer->floats[*at]));
    else
      values.push_back(IntegerAttr::get(type, intAt(*at)));
  });
  return DenseElementsAttr::get(tensorType, values);
}

} // namespace cleave::importer
