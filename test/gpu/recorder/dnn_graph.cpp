// Runs cuDNN graphs on the host, one operation at a time.

#include "dnn_graph.h"

#include "numbers.h"

#include <algorithm>
#include <cmath>

using namespace recorder;

namespace {
using Index = std::vector<int64_t>;
using Kind = DnnOperation::Kind;
enum : int64_t { plain = 0, tensorCores = 1, notReproducible = 2 };

int64_t sizeOf(cudnnDataType_t type) {
  switch (type) {
  case CUDNN_DATA_BFLOAT16:
    return 2;
  case CUDNN_DATA_BOOLEAN:
    return 1;
  case CUDNN_DATA_FLOAT:
  case CUDNN_DATA_INT32:
    return 4;
  default:
    return 0;
  }
}

double load(const char *at, cudnnDataType_t type, int64_t i) {
  switch (type) {
  case CUDNN_DATA_BFLOAT16:
    return widen(reinterpret_cast<const uint16_t *>(at)[i]);
  case CUDNN_DATA_INT32:
    return reinterpret_cast<const int32_t *>(at)[i];
  default:
    return reinterpret_cast<const float *>(at)[i];
  }
}

double rounded(double x, cudnnDataType_t type) {
  return type == CUDNN_DATA_BFLOAT16 ? widen(narrow(float(x)))
         : type == CUDNN_DATA_FLOAT  ? float(x)
                                     : x;
}

int64_t roundedTo(int64_t x, int64_t unit) {
  return (x + unit - 1) / unit * unit;
}

int64_t offset(const Index &index, const Index &strides) {
  int64_t at = 0;
  for (size_t i = 0; i < index.size(); ++i)
    at += index[i] * strides[i];
  return at;
}

template <class Visit> void forAll(const Index &dims, Visit visit) {
  Index index(dims.size());
  for (;;) {
    visit(index);
    size_t i = dims.size();
    while (i > 0 && ++index[i - 1] == dims[i - 1])
      index[--i] = 0;
    if (i == 0)
      return;
  }
}

// The elements of a tensor, at the offsets that its strides give.
struct Numbers {
  const DnnTensor *tensor = nullptr;
  std::vector<double> all;

  explicit Numbers(const DnnTensor &tensor)
      : tensor(&tensor), all(size_t(tensor.span()), NAN) {}
  // Returns the element for an index into a tensor of shape `of`. A dimension
  // of size 1 is broadcast; if this tensor has fewer elements along a
  // dimension, consecutive indices share an element.
  double at(const Index &index, const Index &of) const {
    int64_t place = 0;
    for (size_t i = 0; i < index.size(); ++i)
      place += index[i] / (of[i] / tensor->dims[i]) * tensor->strides[i];
    return all[size_t(place)];
  }
  void set(const Index &index, double x) {
    all[size_t(offset(index, tensor->strides))] = rounded(x, tensor->type);
  }
};

double compute(cudnnPointwiseMode_t mode, double x, double b, double t) {
  switch (mode) {
  case CUDNN_POINTWISE_ADD:
    return x + b;
  case CUDNN_POINTWISE_SUB:
    return x - b;
  case CUDNN_POINTWISE_MUL:
    return x * b;
  case CUDNN_POINTWISE_DIV:
    return x / b;
  case CUDNN_POINTWISE_EXP:
    return std::exp(x);
  case CUDNN_POINTWISE_LOG:
    return std::log(x);
  case CUDNN_POINTWISE_IDENTITY:
    return x;
  case CUDNN_POINTWISE_CMP_GE:
    return x >= b;
  case CUDNN_POINTWISE_CMP_GT:
    return x > b;
  case CUDNN_POINTWISE_BINARY_SELECT:
    return t != 0 ? x : b;
  default:
    return NAN;
  }
}

// Returns how many tensors a pointwise mode reads, or 0 if the recorder does
// not support the mode.
size_t operandsOf(cudnnPointwiseMode_t mode) {
  switch (mode) {
  case CUDNN_POINTWISE_ADD:
  case CUDNN_POINTWISE_SUB:
  case CUDNN_POINTWISE_MUL:
  case CUDNN_POINTWISE_DIV:
  case CUDNN_POINTWISE_CMP_GE:
  case CUDNN_POINTWISE_CMP_GT:
    return 2;
  case CUDNN_POINTWISE_EXP:
  case CUDNN_POINTWISE_LOG:
  case CUDNN_POINTWISE_IDENTITY:
  case CUDNN_POINTWISE_GEN_INDEX:
    return 1;
  case CUDNN_POINTWISE_BINARY_SELECT:
    return 3;
  default:
    return 0;
  }
}

void multiply(const Numbers &a, const Numbers &b, Numbers &out) {
  const Index &dims = out.tensor->dims;
  int64_t depth = a.tensor->dims[3];
  forAll(dims, [&](const Index &index) {
    Index left = index, right = index;
    Index leftOf = dims, rightOf = dims;
    leftOf[3] = rightOf[2] = depth;
    double sum = 0;
    for (int64_t k = 0; k < depth; ++k) {
      left[3] = right[2] = k;
      sum += a.at(left, leftOf) * b.at(right, rightOf);
    }
    out.set(index, sum);
  });
}

void reduce(cudnnReduceTensorOp_t how, const Numbers &from, Numbers &out) {
  bool isMax = how == CUDNN_REDUCE_TENSOR_MAX;
  const Index &dims = from.tensor->dims;
  std::vector<double> sums(out.all.size(), isMax ? -INFINITY : 0);
  auto placeOf = [&](const Index &index) {
    int64_t place = 0;
    for (size_t i = 0; i < dims.size(); ++i)
      place +=
          index[i] / (dims[i] / out.tensor->dims[i]) * out.tensor->strides[i];
    return size_t(place);
  };
  forAll(dims, [&](const Index &index) {
    double x = from.at(index, dims), &sum = sums[placeOf(index)];
    sum = isMax ? std::max(sum, x) : sum + x;
  });
  forAll(out.tensor->dims, [&](const Index &index) {
    out.set(index, sums[size_t(offset(index, out.tensor->strides))]);
  });
}

// The ids of a convolution's tensors x, w and y, one of which is the result.
struct Sides {
  int64_t x, w, y;
};
Sides sidesOf(const DnnOperation &op) {
  switch (op.kind) {
  case Kind::Forward:
    return {op.from[0], op.from[1], op.to};
  case Kind::InputGrad:
    return {op.to, op.from[1], op.from[0]};
  default:
    return {op.from[1], op.to, op.from[0]};
  }
}

// Runs a convolution or one of its gradients: adds the products of all windows
// to the elements of the result.
void convolve(const DnnOperation &op, std::map<int64_t, Numbers> &all,
              int64_t engine) {
  Sides ids = sidesOf(op);
  Numbers &x = all.at(ids.x), &w = all.at(ids.w), &y = all.at(ids.y);
  Numbers &out = all.at(op.to);
  auto operand = [&](double value) {
    return engine == tensorCores && out.tensor->type == CUDNN_DATA_FLOAT
               ? double(toTf32(float(value)))
               : value;
  };
  const Index &xDims = x.tensor->dims, &wDims = w.tensor->dims;
  int64_t groups = xDims[1] / wDims[1], features = wDims[0] / groups;
  Index taps(wDims.begin() + 1, wDims.end()); // channel, then the window
  std::vector<double> sums(out.all.size());
  forAll(y.tensor->dims, [&](const Index &o) {
    int64_t yAt = offset(o, y.tensor->strides);
    forAll(taps, [&](const Index &tap) {
      int64_t channel = o[1] / features * wDims[1] + tap[0];
      int64_t xAt =
          o[0] * x.tensor->strides[0] + channel * x.tensor->strides[1];
      int64_t wAt = o[1] * w.tensor->strides[0] + tap[0] * w.tensor->strides[1];
      for (size_t i = 0; i + 2 < xDims.size(); ++i) {
        int64_t at =
            o[i + 2] * op.strides[i] + tap[i + 1] * op.dilations[i] - op.low[i];
        if (at < 0 || at >= xDims[i + 2])
          return;
        xAt += at * x.tensor->strides[i + 2];
        wAt += tap[i + 1] * w.tensor->strides[i + 2];
      }
      auto value = [](const Numbers &from, int64_t at) {
        return from.all[size_t(at)];
      };
      if (op.kind == Kind::Forward)
        sums[size_t(yAt)] += operand(value(x, xAt)) * operand(value(w, wAt));
      else if (op.kind == Kind::InputGrad)
        sums[size_t(xAt)] += operand(value(y, yAt)) * operand(value(w, wAt));
      else
        sums[size_t(wAt)] += operand(value(y, yAt)) * operand(value(x, xAt));
    });
  });
  forAll(out.tensor->dims, [&](const Index &index) {
    double sum = sums[size_t(offset(index, out.tensor->strides))];
    out.set(index, engine == notReproducible ? NAN : sum);
  });
}

void run(const DnnOperation &operation, std::map<int64_t, Numbers> &all,
         int64_t engine) {
  if (operation.isConvolution())
    return convolve(operation, all, engine);
  Numbers &out = all.at(operation.to);
  const Index &dims = out.tensor->dims;
  auto from = [&](size_t i) -> const Numbers & {
    return all.at(operation.from[i]);
  };
  switch (operation.kind) {
  case Kind::Matmul:
    return multiply(from(0), from(1), out);
  case Kind::Reduction:
    return reduce(operation.reduction, from(0), out);
  case Kind::Reshape: // the same memory
    for (size_t i = 0; i < out.all.size(); ++i)
      out.all[i] = rounded(from(0).all[i], out.tensor->type);
    return;
  case Kind::Pointwise:
    forAll(dims, [&](const Index &index) {
      if (operation.mode == CUDNN_POINTWISE_GEN_INDEX)
        return out.set(index, double(index[size_t(operation.axis)]));
      double values[3] = {};
      for (size_t i = 0; i < operation.from.size(); ++i)
        values[i] = from(i).at(index, dims);
      out.set(index, compute(operation.mode, values[0], values[1], values[2]));
    });
  default:
    return;
  }
}
} // namespace

int64_t DnnTensor::count() const {
  int64_t out = 1;
  for (int64_t size : dims)
    out *= size;
  return out;
}

int64_t DnnTensor::span() const {
  int64_t out = 1;
  for (size_t i = 0; i < dims.size(); ++i)
    out += (dims[i] - 1) * strides[i];
  return out;
}

int64_t DnnTensor::bytes() const { return span() * sizeOf(type); }

std::string DnnProgram::add(const DnnTensor &tensor) {
  if (tensor.dims.size() < 4 || tensor.dims.size() > 5 ||
      tensor.strides.size() != tensor.dims.size())
    return "a tensor has no four or five dimensions";
  for (size_t i = 0; i < tensor.dims.size(); ++i)
    if (tensor.dims[i] < 1 || tensor.strides[i] < 1)
      return "a tensor has sizes or strides below 1";
  if (!sizeOf(tensor.type))
    return "the recorder has no such type";
  auto [found, isNew] = tensors.try_emplace(tensor.id, tensor);
  if (!isNew && (found->second.dims != tensor.dims ||
                 found->second.strides != tensor.strides ||
                 found->second.type != tensor.type))
    return "two tensors have one id";
  return "";
}

std::string DnnProgram::add(const DnnOperation &operation) {
  if (makes(operation.to))
    return "two operations have one result";
  std::string fault = findFault(operation);
  if (fault.empty())
    operations.push_back(operation);
  return fault;
}

bool DnnProgram::makes(int64_t id) const {
  return std::any_of(operations.begin(), operations.end(),
                     [&](const DnnOperation &one) { return one.to == id; });
}

std::string DnnProgram::findFault(const DnnOperation &operation) const {
  const DnnTensor &out = tensors.at(operation.to);
  // An earlier operation must write each virtual tensor that this one reads.
  for (int64_t id : operation.from)
    if (tensors.at(id).isVirtual && !makes(id))
      return "a virtual tensor is read before it is made";
  if (operation.isConvolution())
    return findConvolutionFault(operation);
  for (int64_t id : operation.from)
    if (tensors.at(id).dims.size() != 4 || out.dims.size() != 4)
      return "a tensor has no four dimensions";
  auto divides = [&](const DnnTensor &x, const Index &of, bool onlyOnes) {
    for (size_t i = 0; i < 4; ++i)
      if (of[i] % x.dims[i] ||
          (onlyOnes && x.dims[i] != 1 && x.dims[i] != of[i]))
        return false;
    return true;
  };
  const DnnTensor &first = tensors.at(operation.from[0]);
  switch (operation.kind) {
  case Kind::Matmul: {
    const DnnTensor &second = tensors.at(operation.from[1]);
    Index left = out.dims, right = out.dims;
    left[3] = right[2] = first.dims[3];
    if (first.dims[2] != out.dims[2] || second.dims[3] != out.dims[3] ||
        second.dims[2] != first.dims[3] || !divides(first, left, false) ||
        !divides(second, right, false))
      return "sizes of a product do not fit";
    return "";
  }
  case Kind::Reduction:
    if (operation.reduction != CUDNN_REDUCE_TENSOR_ADD &&
        operation.reduction != CUDNN_REDUCE_TENSOR_MAX)
      return "the recorder has no such reduction";
    return divides(out, first.dims, false) ? ""
                                           : "sizes of a reduction do not fit";
  case Kind::Reshape:
    return first.count() == out.count() && first.span() == out.span()
               ? ""
               : "sizes of a reshape do not fit";
  case Kind::Pointwise:
    if (operandsOf(operation.mode) != operation.from.size())
      return "the recorder has no such operation on elements";
    if (operation.mode == CUDNN_POINTWISE_GEN_INDEX &&
        (operation.axis < 0 || operation.axis > 3))
      return "indices along no axis";
    for (int64_t id : operation.from)
      if (!divides(tensors.at(id), out.dims, true))
        return "sizes of an operation on elements do not fit";
    return "";
  default:
    return "";
  }
}

std::string
DnnProgram::findConvolutionFault(const DnnOperation &operation) const {
  Sides ids = sidesOf(operation);
  const DnnTensor &x = tensors.at(ids.x), &w = tensors.at(ids.w),
                  &y = tensors.at(ids.y);
  size_t rank = x.dims.size();
  for (auto *list : {&operation.strides, &operation.dilations, &operation.low,
                     &operation.high})
    if (w.dims.size() != rank || y.dims.size() != rank ||
        list->size() != rank - 2)
      return "a convolution has arrays or windows of several ranks";
  if (x.type != w.type || x.type != y.type)
    return "a convolution has arrays of several types";
  if (x.dims[1] % w.dims[1] || w.dims[0] % (x.dims[1] / w.dims[1]) ||
      y.dims[0] != x.dims[0] || y.dims[1] != w.dims[0])
    return "samples, channels or features of a convolution do not fit";
  for (size_t i = 0; i < rank - 2; ++i) {
    int64_t stride = operation.strides[i];
    int64_t room = x.dims[i + 2] + operation.low[i] + operation.high[i] -
                   (w.dims[i + 2] - 1) * operation.dilations[i] - 1;
    if (stride < 1 || operation.dilations[i] < 1 || operation.low[i] < 0 ||
        operation.high[i] < 0 || room < 0 || y.dims[i + 2] != room / stride + 1)
      return "windows of a convolution do not fit";
  }
  return "";
}

const DnnOperation *DnnProgram::convolution() const {
  return operations.size() == 1 && operations[0].isConvolution()
             ? &operations[0]
             : nullptr;
}

std::vector<DnnEngine> DnnProgram::engines() const {
  if (!convolution())
    return {{plain, {}}};
  return {{notReproducible, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}},
          {tensorCores, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}},
          {plain, {}}};
}

int64_t DnnProgram::workspace(int64_t engine) const {
  int64_t bytes = 256;
  if (const DnnOperation *one = convolution()) {
    Sides ids = sidesOf(*one);
    for (int64_t id : {ids.x, ids.w, ids.y}) {
      const DnnTensor &tensor = tensors.at(id);
      if (engine == tensorCores)
        bytes += tensor.count() / tensor.dims[1] *
                 roundedTo(tensor.dims[1], 8) * sizeOf(tensor.type);
    }
    return bytes;
  }
  int products = 0;
  for (const DnnOperation &operation : operations) {
    products += operation.kind == Kind::Matmul;
    const DnnTensor &from = tensors.at(operation.from[0]);
    const DnnTensor &to = tensors.at(operation.to);
    if (operation.kind == Kind::Reduction && from.dims[1] != to.dims[1])
      bytes += roundedTo(from.count() * 2, 128);
  }
  const DnnTensor &last = tensors.at(operations.back().from[0]);
  if (products > 2)
    bytes += 2 * last.dims[0] * last.dims[1] * roundedTo(last.dims[2], 64) *
             roundedTo(last.dims[3], 128);
  return bytes;
}

std::vector<int64_t> DnnProgram::ids() const {
  std::vector<int64_t> out;
  for (const auto &[id, tensor] : tensors)
    if (!tensor.isVirtual)
      out.push_back(id);
  return out;
}

std::vector<Access>
DnnProgram::accesses(const std::map<int64_t, char *> &at) const {
  std::vector<Access> out;
  for (const auto &[id, tensor] : tensors) {
    if (tensor.isVirtual || tensor.isValue)
      continue;
    out.push_back({at.at(id), tensor.bytes(), makes(id)});
  }
  return out;
}

std::function<void()> DnnProgram::bind(const std::map<int64_t, char *> &at,
                                       int64_t engine) const {
  std::map<int64_t, double> values;
  for (const auto &[id, tensor] : tensors)
    if (tensor.isValue)
      values[id] = load(at.at(id), tensor.type, 0);
  return [program = *this, at, values, engine] {
    std::map<int64_t, Numbers> all;
    for (const auto &[id, tensor] : program.tensors) {
      Numbers &numbers = all.emplace(id, tensor).first->second;
      if (tensor.isValue) {
        numbers.all[0] = values.at(id);
      } else if (!tensor.isVirtual && !program.makes(id)) {
        forAll(tensor.dims, [&, &tensor = tensor, id = id](const Index &index) {
          int64_t place = offset(index, tensor.strides);
          numbers.all[size_t(place)] = load(at.at(id), tensor.type, place);
        });
      }
    }
    for (const DnnOperation &operation : program.operations)
      run(operation, all, engine);
    for (const DnnOperation &operation : program.operations) {
      const DnnTensor &tensor = program.tensors.at(operation.to);
      if (tensor.isVirtual)
        continue;
      const Numbers &numbers = all.at(operation.to);
      char *to = at.at(operation.to);
      forAll(tensor.dims, [&](const Index &index) {
        int64_t place = offset(index, tensor.strides);
        double x = numbers.all[size_t(place)];
        if (tensor.type == CUDNN_DATA_BFLOAT16)
          reinterpret_cast<uint16_t *>(to)[place] = narrow(float(x));
        else
          reinterpret_cast<float *>(to)[place] = float(x);
      });
    }
  };
}
