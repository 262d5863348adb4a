// Reference semantics of convolution, pooling and top-k.

#include "Model.h"

#include <cmath>
#include <numeric>

using namespace mlir;
using namespace cleave;
using namespace cleave::evaluate;

namespace {

/// Computes the input index of element `k` of window `o`; false if it is in the
/// padding.
template <typename Op>
bool inputIndex(Op op, ArrayRef<int64_t> o, ArrayRef<int64_t> k,
                ArrayRef<int64_t> sizes, MutableArrayRef<int64_t> i) {
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    i[dim] = o[dim] * op.getStrides()[dim] + k[dim] * op.getDilations()[dim] -
             op.getLow()[dim];
    if (i[dim] < 0 || i[dim] >= sizes[dim])
      return false;
  }
  return true;
}

/// Calls visit(input, filter, result) for every product of a convolution. The
/// arguments are row-major indices of the elements.
template <typename Op, typename Visit>
void forEachProduct(Op op, ArrayRef<int64_t> input, ArrayRef<int64_t> filter,
                    ArrayRef<int64_t> result, Visit visit) {
  int64_t groups = op.getGroups(), channels = filter[1],
          features = filter[0] / groups;
  forEachIndex(result, [&](ArrayRef<int64_t> y, int64_t flatY) {
    int64_t group = y[1] / features;
    forEachIndex(filter.drop_front(), [&](ArrayRef<int64_t> w, int64_t flatW) {
      Index x(input.size());
      x[0] = y[0];
      x[1] = group * channels + w[0];
      if (!inputIndex(op, y.drop_front(2), w.drop_front(), input.drop_front(2),
                      MutableArrayRef<int64_t>(x).drop_front(2)))
        return;
      int64_t perFeature = 1;
      for (int64_t size : filter.drop_front())
        perFeature *= size;
      visit(flatten(input, x), y[1] * perFeature + flatW, flatY);
    });
  });
}

void conv(nn::ConvOp op, Operands in, Results out) {
  forEachProduct(op, in[0]->shape(), in[1]->shape(), out[0].shape(),
                 [&](int64_t x, int64_t w, int64_t y) {
                   out[0].floats[y] += in[0]->floats[x] * in[1]->floats[w];
                 });
}

void convInputGrad(nn::ConvInputGradOp op, Operands in, Results out) {
  forEachProduct(op, out[0].shape(), in[1]->shape(), in[0]->shape(),
                 [&](int64_t x, int64_t w, int64_t y) {
                   out[0].floats[x] += in[0]->floats[y] * in[1]->floats[w];
                 });
}

void convFilterGrad(nn::ConvFilterGradOp op, Operands in, Results out) {
  forEachProduct(op, in[1]->shape(), out[0].shape(), in[0]->shape(),
                 [&](int64_t x, int64_t w, int64_t y) {
                   out[0].floats[w] += in[0]->floats[y] * in[1]->floats[x];
                 });
}

/// Calls visit(index, window) for every result element of a pooling: its
/// row-major index, and those of the input elements in its window.
template <typename Op, typename Visit>
void forEachWindow(Op op, ArrayRef<int64_t> input, ArrayRef<int64_t> result,
                   Visit visit) {
  forEachIndex(result, [&](ArrayRef<int64_t> y, int64_t flatY) {
    SmallVector<int64_t> window;
    forEachIndex(op.getWindow(), [&](ArrayRef<int64_t> k, int64_t) {
      Index x(y.begin(), y.end());
      if (inputIndex(op, y.drop_front(2), k, input.drop_front(2),
                     MutableArrayRef<int64_t>(x).drop_front(2)))
        window.push_back(flatten(input, x));
    });
    visit(flatY, ArrayRef<int64_t>(window));
  });
}

/// Returns the first of the window's largest elements. NaN counts as larger
/// than all numbers.
int64_t largest(const Tensor &input, ArrayRef<int64_t> window) {
  int64_t best = window.front();
  for (int64_t at : window)
    if (isLarger(input.floats[at], input.floats[best]))
      best = at;
  return best;
}

void pool(nn::PoolOp op, Operands in, Results out) {
  forEachWindow(op, in[0]->shape(), out[0].shape(),
                [&](int64_t y, ArrayRef<int64_t> window) {
                  if (window.empty()) // only in the padding of a tile
                    return;
                  if (op.getKind() == nn::PoolKind::Max)
                    out[0].floats[y] = in[0]->floats[largest(*in[0], window)];
                  else
                    for (int64_t at : window)
                      out[0].floats[y] += in[0]->floats[at];
                });
}

void poolGrad(nn::PoolGradOp op, Operands in, Results out) {
  forEachWindow(op, out[0].shape(), in[0]->shape(),
                [&](int64_t y, ArrayRef<int64_t> window) {
                  if (window.empty())
                    return;
                  if (op.getKind() == nn::PoolKind::Max)
                    out[0].floats[largest(*in[1], window)] += in[0]->floats[y];
                  else
                    for (int64_t at : window)
                      out[0].floats[at] += in[0]->floats[y];
                });
}

void topK(nn::TopKOp op, Operands in, Results out) {
  int64_t n = in[0]->shape().back(), k = op.getK();
  SmallVector<int64_t> order(n);
  for (int64_t row = 0; row < in[0]->size() / n; ++row) {
    const double *values = &in[0]->floats[row * n];
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return isLarger(values[a], values[b]);
    });
    for (int64_t i = 0; i < k; ++i) {
      out[0].floats[row * k + i] = values[order[i]];
      out[1].ints[row * k + i] = order[i];
    }
  }
}

} // namespace

void cleave::evaluate::attachConvolution(MLIRContext *context) {
  attach<nn::ConvOp, conv>(context);
  attach<nn::ConvInputGradOp, convInputGrad>(context);
  attach<nn::ConvFilterGradOp, convFilterGrad>(context);
  attach<nn::PoolOp, pool>(context);
  attach<nn::PoolGradOp, poolGrad>(context);
  attach<nn::TopKOp, topK>(context);
}
