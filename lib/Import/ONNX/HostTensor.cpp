// Strided host tensors and elementwise evaluation.

#include "HostTensor.h"

#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Endian.h"

#include <cmath>

using namespace mlir;
using llvm::ArrayRef;
using llvm::Twine;

namespace cleave::importer {

static llvm::Error reason(const Twine &text) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), text);
}

static std::string spell(ArrayRef<int64_t> shape) {
  std::string text = "[";
  for (auto [index, size] : llvm::enumerate(shape))
    text += (index ? ", " : "") + std::to_string(size);
  return text + "]";
}

int64_t product(ArrayRef<int64_t> shape) {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  return count;
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

HostTensor::HostTensor(Element type, ArrayRef<int64_t> shape)
    : element(type), dims(shape), steps(rowMajorStrides(shape)),
      buffer(std::make_shared<Buffer>()) {
  int64_t count = product(shape);
  if (type == Element::Bool)
    buffer->bools.resize(count);
  else if (isFloat(type))
    buffer->floats.resize(count);
  else
    buffer->ints.resize(count);
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

double roundTo(Element type, double value) {
  if (type == Element::F32)
    return static_cast<float>(value);
  if (type == Element::BF16) {
    llvm::APFloat rounded(value);
    bool losesInfo;
    rounded.convert(llvm::APFloat::BFloat(), llvm::APFloat::rmNearestTiesToEven,
                    &losesInfo);
    rounded.convert(llvm::APFloat::IEEEdouble(),
                    llvm::APFloat::rmNearestTiesToEven, &losesInfo);
    return rounded.convertToDouble();
  }
  return value;
}

/// Wraps an integer to the range of its type.
static int64_t wrapTo(Element type, int64_t value) {
  switch (type) {
  case Element::U8:
    return static_cast<uint8_t>(value);
  case Element::I8:
    return static_cast<int8_t>(value);
  case Element::U16:
    return static_cast<uint16_t>(value);
  case Element::I16:
    return static_cast<int16_t>(value);
  case Element::I32:
    return static_cast<int32_t>(value);
  case Element::U32:
    return static_cast<uint32_t>(value);
  default:
    return value;
  }
}

void HostTensor::setInt(int64_t position, int64_t value) {
  if (element == Element::Bool)
    buffer->bools[position] = value != 0;
  else if (holdsFloats())
    buffer->floats[position] = roundTo(element, static_cast<double>(value));
  else
    buffer->ints[position] = wrapTo(element, value);
}

void HostTensor::setFloat(int64_t position, double value) {
  if (holdsFloats()) {
    buffer->floats[position] = roundTo(element, value);
    return;
  }
  if (element == Element::Bool)
    return setInt(position, value != 0);
  // Out of range is undefined in C++; saturate.
  if (std::isnan(value))
    value = 0;
  if (value >= 9.2e18)
    return setInt(position, std::numeric_limits<int64_t>::max());
  if (value <= -9.2e18)
    return setInt(position, std::numeric_limits<int64_t>::min());
  setInt(position, static_cast<int64_t>(value));
}

llvm::Expected<HostTensor>
HostTensor::fromBytes(Element type, ArrayRef<int64_t> shape,
                      llvm::StringRef bytes) {
  int64_t count = product(shape), width = byteSize(type);
  if (type == Element::F16 || !(isFloat(type) || isInteger(type)))
    return reason("elements of type " + nameOf(type) + " are not supported");
  if (count > kMaxElements)
    return reason("it has too many elements to evaluate (" + Twine(count) +
                  ")");
  if (int64_t(bytes.size()) != count * width)
    return reason("it holds " + Twine(bytes.size()) + " bytes, expected " +
                  Twine(count * width));
  HostTensor tensor(type, shape);
  const char *data = bytes.data();
  using llvm::support::endian::read;
  constexpr auto little = llvm::endianness::little;
  for (int64_t i = 0; i < count; ++i) {
    const char *at = data + i * width;
    switch (type) {
    case Element::F32:
      tensor.buffer->floats[i] =
          llvm::bit_cast<float>(read<uint32_t>(at, little));
      break;
    case Element::F64:
      tensor.buffer->floats[i] =
          llvm::bit_cast<double>(read<uint64_t>(at, little));
      break;
    case Element::BF16:
      tensor.buffer->floats[i] = llvm::bit_cast<float>(
          static_cast<uint32_t>(read<uint16_t>(at, little)) << 16);
      break;
    case Element::Bool:
      tensor.buffer->bools[i] = *at != 0;
      break;
    default: {
      uint64_t value = width == 1   ? uint8_t(*at)
                       : width == 2 ? read<uint16_t>(at, little)
                       : width == 4 ? read<uint32_t>(at, little)
                                    : read<uint64_t>(at, little);
      tensor.setInt(i, static_cast<int64_t>(value));
    }
    }
  }
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

HostTensor HostTensor::compressed() const {
  if (size() == 0)
    return *this;
  // Look only at what the buffer really holds.
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
                       ? buffer->floats[at[0]] == buffer->floats[at[1]]
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
  // NaN is a splat too: compare with "not different from".
  forEach(&view, view.dims, [&](const int64_t *at) {
    if (holdsFloats()) {
      double a = buffer->floats[base], b = buffer->floats[*at];
      equal &= a == b || (std::isnan(a) && std::isnan(b));
    } else {
      equal &= intAt(*at) == intAt(base);
    }
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

HostTensor HostTensor::reshaped(ArrayRef<int64_t> shape) const {
  // Keep repeated dimensions where only sizes of 1 come and go.
  HostTensor result = *this;
  Shape have, haveSteps;
  for (auto [size, step] : llvm::zip(dims, steps))
    if (size != 1) {
      have.push_back(size);
      haveSteps.push_back(step);
    }
  Shape want;
  for (int64_t size : shape)
    if (size != 1)
      want.push_back(size);
  if (have == want) {
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
  forEach(&view, view.dims, [&](const int64_t *at) {
    if (holdsFloats())
      result.setFloat(next++, buffer->floats[*at]);
    else
      result.setInt(next++, intAt(*at));
  });
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

/// The common shape, and operands seen with it where only dimensions remain
/// along which some operand varies.
static llvm::Expected<Shape>
prepare(ArrayRef<const HostTensor *> operands,
        llvm::SmallVectorImpl<HostTensor> &views, Shape &live) {
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
static llvm::Expected<HostTensor> map(Element type,
                                      ArrayRef<const HostTensor *> operands,
                                      Function function, Read read,
                                      Write write) {
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
