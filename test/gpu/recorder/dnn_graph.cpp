// Graphs of cuDNN's, operation by operation, on the host.

#include "dnn_graph.h"

#include "numbers.h"

#include <algorithm>
#include <cmath>

using namespace recorder;

namespace {
using Index = std::vector<int64_t>;
using Kind = DnnOperation::Kind;

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

// The numbers of a tensor, where its strides put them.
struct Numbers {
  const DnnTensor *tensor = nullptr;
  std::vector<double> all;

  explicit Numbers(const DnnTensor &tensor)
      : tensor(&tensor), all(size_t(tensor.span()), NAN) {}
  // Sizes of 1 repeat; several indices in a row share one where it has fewer.
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

// How many tensors it reads; 0: the recorder has none.
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

void run(const DnnOperation &operation, std::map<int64_t, Numbers> &all) {
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
  if (tensor.dims.size() != 4 || tensor.strides.size() != 4)
    return "a tensor has no four dimensions";
  for (size_t i = 0; i < 4; ++i)
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
  // Virtual tensors come from operations before: the recorder keeps the order.
  for (int64_t id : operation.from)
    if (tensors.at(id).isVirtual && !makes(id))
      return "a virtual tensor is read before it is made";
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
  }
  return "";
}

int64_t DnnProgram::workspace() const {
  int64_t bytes = 256;
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

std::function<void()>
DnnProgram::bind(const std::map<int64_t, char *> &at) const {
  std::map<int64_t, double> values;
  for (const auto &[id, tensor] : tensors)
    if (tensor.isValue)
      values[id] = load(at.at(id), tensor.type, 0);
  return [program = *this, at, values] {
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
      run(operation, all);
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
