// Reference semantics of contractions and reductions.

#include "Model.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace cleave;
using namespace cleave::evaluate;

/// Returns, for each label of `labels`, its stride in a row-major operand; 0
/// for labels that the operand does not have.
static Index stridesOf(StringRef labels, StringRef operand,
                       ArrayRef<int64_t> shape) {
  Index strides(labels.size(), 0);
  int64_t stride = 1;
  for (int64_t dim = shape.size() - 1; dim >= 0; --dim) {
    if (size_t at = labels.find(operand[dim]); at != StringRef::npos)
      strides[at] = stride;
    stride *= shape[dim];
  }
  return strides;
}

static int64_t dot(ArrayRef<int64_t> index, ArrayRef<int64_t> strides) {
  int64_t offset = 0;
  for (auto [i, stride] : llvm::zip(index, strides))
    offset += i * stride;
  return offset;
}

static void einsum(nn::EinsumOp op, Operands in, Results out) {
  nn::EinsumOp::Labels labels = op.getLabels();
  std::string contracted;
  Index sizes;
  for (auto [dim, label] : llvm::enumerate(labels.lhs))
    if (labels.result.find(label) == std::string::npos) {
      contracted += label;
      sizes.push_back(in[0]->shape()[dim]);
    }
  Index lhsOuter = stridesOf(labels.result, labels.lhs, in[0]->shape()),
        rhsOuter = stridesOf(labels.result, labels.rhs, in[1]->shape()),
        lhsInner = stridesOf(contracted, labels.lhs, in[0]->shape()),
        rhsInner = stridesOf(contracted, labels.rhs, in[1]->shape());
  // The offsets in both operands for each index of the summed dimensions. They
  // are computed once, since they are the same for all result elements.
  SmallVector<std::pair<int64_t, int64_t>> inner;
  forEachIndex(sizes, [&](ArrayRef<int64_t> index, int64_t) {
    inner.push_back({dot(index, lhsInner), dot(index, rhsInner)});
  });
  const double *lhs = in[0]->floats.data(), *rhs = in[1]->floats.data();
  forEachIndex(out[0].shape(), [&](ArrayRef<int64_t> index, int64_t flat) {
    int64_t left = dot(index, lhsOuter), right = dot(index, rhsOuter);
    double sum = 0;
    for (auto [l, r] : inner)
      sum += lhs[left + l] * rhs[right + r];
    out[0].floats[flat] = sum;
  });
}

static void reduce(nn::ReduceOp op, Operands in, Results out) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Type element = in[0]->type.getElementType();
  auto combine = [&](auto &into, auto value) {
    switch (op.getCombiner()) {
    case nn::Combiner::Sum:
      if constexpr (std::is_same_v<decltype(value), int64_t>)
        into = addIntegers(element, into, value);
      else
        into += value;
      break;
    case nn::Combiner::Max:
      into = value != value ? value : std::max(into, value); // propagates NaN
      break;
    case nn::Combiner::Min:
      into = value != value ? value : std::min(into, value);
      break;
    }
  };
  if (op.getCombiner() != nn::Combiner::Sum) {
    bool max = op.getCombiner() == nn::Combiner::Max;
    std::fill(out[0].floats.begin(), out[0].floats.end(),
              max ? -infinity : infinity);
    std::fill(out[0].ints.begin(), out[0].ints.end(),
              max ? std::numeric_limits<int64_t>::min()
                  : std::numeric_limits<int64_t>::max());
  }
  forEachIndex(in[0]->shape(), [&](ArrayRef<int64_t> index, int64_t flat) {
    Index kept;
    for (auto [dim, i] : llvm::enumerate(index))
      if (!llvm::is_contained(op.getDims(), static_cast<int64_t>(dim)))
        kept.push_back(i);
    int64_t to = flatten(out[0].shape(), kept);
    if (in[0]->isFloat())
      combine(out[0].floats[to], in[0]->floats[flat]);
    else
      combine(out[0].ints[to], in[0]->ints[flat]);
  });
}

static void argMax(nn::ArgMaxOp op, Operands in, Results out) {
  int64_t dim = op.getDim(), size = in[0]->shape()[dim];
  forEachIndex(out[0].shape(), [&](ArrayRef<int64_t> index, int64_t flat) {
    Index source(index);
    source.insert(source.begin() + dim, 0);
    int64_t best = 0, bestAt = flatten(in[0]->shape(), source);
    for (int64_t i = 1; i < size; ++i) {
      source[dim] = i;
      int64_t at = flatten(in[0]->shape(), source);
      bool larger = in[0]->isFloat()
                        ? isLarger(in[0]->floats[at], in[0]->floats[bestAt])
                        : in[0]->ints[at] > in[0]->ints[bestAt];
      if (larger)
        best = i, bestAt = at;
    }
    out[0].ints[flat] = best;
  });
}

void cleave::evaluate::attachContraction(MLIRContext *c) {
  attach<nn::EinsumOp, einsum>(c);
  attach<nn::ReduceOp, reduce>(c);
  attach<nn::ArgMaxOp, argMax>(c);
}
