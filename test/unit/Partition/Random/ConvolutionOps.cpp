// Generates convolution, pooling and their gradients, and top-k.

#include "Generator.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::random;

namespace {

int64_t elements(ArrayRef<int64_t> shape) {
  int64_t count = 1;
  for (int64_t extent : shape)
    count *= extent;
  return count;
}

/// Returns an image: samples, channels, and one or two spatial dimensions.
Entry image(Generator &g, bool exact) {
  Entry x = exact ? g.anyExact(2, 4) : g.any(2, 4);
  return x.rank() < 3 ? g.reshaped(x, 3) : x;
}

/// Windows of random sizes, strides and dilations. The padding may be longer
/// than a rank's tile.
struct Windows {
  SmallVector<int64_t> kernel, strides, dilations, low, high, output;
  bool fits = true;

  /// For pooling, the padding must be shorter than the windows.
  Windows(Generator &g, ArrayRef<int64_t> spatial, bool ofPool) {
    for (int64_t size : spatial) {
      int64_t k = g.random.between(1, 3),
              dilation = g.random.chance(3, 4) ? 1 : 2,
              stride = g.random.chance(1, 2) ? 1 : g.random.between(1, 3);
      int64_t reach = (k - 1) * dilation + 1,
              most = ofPool ? reach - 1 : int64_t(3);
      kernel.push_back(k);
      strides.push_back(stride);
      dilations.push_back(dilation);
      low.push_back(g.random.chance(1, 2) ? 0 : g.random.below(most + 1));
      high.push_back(g.random.chance(1, 2) ? 0 : g.random.below(most + 1));
      int64_t room = size + low.back() + high.back() - reach;
      fits &= room >= 0;
      output.push_back(room / stride + 1);
      // If the input is shorter than the dilation, all elements of a dilated
      // window may be padding. Such a window is rejected for pooling.
      for (int64_t at = 0; ofPool && fits && at < output.back(); ++at) {
        int64_t first = at * stride - low.back();
        bool touches = false;
        for (int64_t i = first; i < first + reach; i += dilation)
          touches |= i >= 0 && i < size;
        fits &= touches;
      }
    }
  }
};

SmallVector<int64_t> joined(ArrayRef<int64_t> first, ArrayRef<int64_t> rest) {
  SmallVector<int64_t> all(first);
  llvm::append_range(all, rest);
  return all;
}

/// Generates a convolution, and one or both of its gradients.
bool conv(Generator &g) {
  Entry x = image(g, false);
  ArrayRef<int64_t> shape = x.shape();
  Windows w(g, shape.drop_front(2), false);
  if (!w.fits)
    return false;
  SmallVector<int64_t> divisors;
  for (int64_t d = 1; d <= shape[1]; ++d)
    if (shape[1] % d == 0)
      divisors.push_back(d);
  int64_t groups = g.random.chance(1, 3) ? 1 : g.random.pick(divisors);
  int64_t features = groups * g.random.between(1, groups > 2 ? 2 : 5);
  SmallVector<int64_t> filterShape =
      joined({features, shape[1] / groups}, w.kernel);
  SmallVector<int64_t> output = joined({shape[0], features}, w.output);
  int64_t terms = elements(filterShape) / features;
  if (elements(output) > 2 * g.kMaxElements ||
      elements(filterShape) > 2 * g.kMaxElements)
    return false;
  Entry filter = g.like(g.floats(filterShape));
  double bound = x.bound * filter.bound * terms;
  if (bound > g.maxBound)
    return false;
  bool exact = x.exact && filter.exact;
  Value y =
      nn::ConvOp::create(g.b, g.loc, g.floats(output), x.value, filter.value,
                         w.strides, w.dilations, w.low, w.high, groups);
  if (g.random.chance(1, 2)) {
    g.give(y, bound, exact);
    if (g.random.chance(1, 2))
      return true;
  }
  Entry dy = g.like(g.floats(output), 1e3);
  double ofInput = dy.bound * filter.bound * elements(filterShape),
         ofFilter = dy.bound * x.bound * elements(output);
  if (g.random.chance(1, 2) && ofInput <= g.maxBound)
    g.give(nn::ConvInputGradOp::create(g.b, g.loc, x.type(), dy.value,
                                       filter.value, w.strides, w.dilations,
                                       w.low, w.high, groups),
           ofInput, dy.exact && filter.exact);
  else if (ofFilter <= g.maxBound)
    g.give(nn::ConvFilterGradOp::create(g.b, g.loc, g.floats(filterShape),
                                        dy.value, x.value, w.strides,
                                        w.dilations, w.low, w.high, groups),
           ofFilter, dy.exact && x.exact);
  else
    g.give(y, bound, exact);
  return true;
}

/// Generates a pooling operation. Max pooling gets values without rounding
/// errors, because these must not decide which element is the largest.
bool pool(Generator &g) {
  bool takesMax = g.random.chance(1, 2);
  Entry x = image(g, takesMax);
  ArrayRef<int64_t> shape = x.shape();
  Windows w(g, shape.drop_front(2), true);
  SmallVector<int64_t> output = joined(shape.take_front(2), w.output);
  if (!w.fits || elements(output) > 2 * g.kMaxElements)
    return false;
  int64_t terms = elements(w.kernel);
  auto kind = takesMax ? nn::PoolKind::Max : nn::PoolKind::Sum;
  double bound = takesMax ? x.bound : x.bound * terms;
  if (bound > g.maxBound)
    return false;
  if (g.random.chance(1, 2)) {
    g.give(nn::PoolOp::create(g.b, g.loc, g.floats(output), kind, x.value,
                              w.kernel, w.strides, w.dilations, w.low, w.high),
           bound, x.exact);
    return true;
  }
  Entry dy = g.like(g.floats(output), g.maxBound / terms);
  g.give(nn::PoolGradOp::create(g.b, g.loc, x.type(), kind, dy.value, x.value,
                                w.kernel, w.strides, w.dilations, w.low,
                                w.high),
         dy.bound * terms, dy.exact);
  return true;
}

bool topK(Generator &g) {
  Entry x = g.anyExact(1, 4);
  SmallVector<int64_t> shape(x.shape());
  int64_t k = g.random.between(1, shape.back());
  shape.back() = k;
  bool narrow = g.random.chance(1, 4);
  RankedTensorType indices = g.ints(shape),
                   type = narrow ? indices.clone(g.b.getI32Type()) : indices;
  auto op =
      nn::TopKOp::create(g.b, g.loc, x.type().clone(shape), type, x.value, k);
  Value places = op.getIndices();
  if (narrow)
    places = arith::ExtSIOp::create(g.b, g.loc, indices, places);
  g.give(places, x.shape().back(), true);
  g.give(op.getValues(), x.bound, true);
  return true;
}

} // namespace

ArrayRef<Family> cleave::random::convolutionFamilies() {
  static const Family families[] = {
      {"conv", 22, conv},
      {"pool", 14, pool},
      {"top_k", 6, topK},
  };
  return families;
}
