// Operations that move elements.

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

bool broadcast(Generator &g) {
  Entry x = g.anyKind(0, 3);
  SmallVector<int64_t> shape, dims;
  for (int64_t extent : x.shape()) {
    if (g.random.chance(1, 3))
      shape.push_back(g.size());
    dims.push_back(shape.size());
    shape.push_back(extent);
  }
  if (shape.size() == dims.size() || g.random.chance(1, 3))
    shape.push_back(g.size());
  if (elements(shape) > g.kMaxElements)
    return false;
  g.give(
      nn::BroadcastOp::create(g.b, g.loc, x.type().clone(shape), x.value, dims),
      x.bound, x.exact);
  return true;
}

/// Generates a reshape that merges dimensions, splits dimensions, or merges all
/// dimensions into one and splits that one differently.
bool reshape(Generator &g) {
  Entry x = g.anyKind(0, 5);
  if (g.random.chance(1, 2)) {
    Entry y = g.reshaped(x, g.random.between(0, 1) +
                                std::max<int64_t>(x.rank() - 1, 1));
    if (y.value == x.value)
      return false;
    g.give(y.value, y.bound, y.exact);
    return true;
  }
  SmallVector<int64_t> shape;
  int64_t left = elements(x.shape());
  while (left > 1 && shape.size() < 4) {
    SmallVector<int64_t> divisors;
    for (int64_t d = 1; d <= left; ++d)
      if (left % d == 0)
        divisors.push_back(d);
    int64_t d = shape.size() == 3 ? left : g.random.pick(divisors);
    shape.push_back(d);
    left /= d;
  }
  if (left > 1)
    shape.push_back(left);
  if (g.random.chance(1, 4))
    shape.insert(shape.begin() + g.random.below(shape.size() + 1), 1);
  if (shape.size() > 5)
    return false;
  g.give(nn::ReshapeOp::create(g.b, g.loc, x.type().clone(shape), x.value),
         x.bound, x.exact);
  return true;
}

bool transpose(Generator &g) {
  Entry x = g.anyKind(2, 5);
  SmallVector<int64_t> permutation;
  for (int64_t dim = 0; dim < x.rank(); ++dim)
    permutation.push_back(dim);
  g.random.shuffle(permutation);
  g.give(nn::TransposeOp::create(g.b, g.loc, x.value,
                                 g.b.getDenseI64ArrayAttr(permutation)),
         x.bound, x.exact);
  return true;
}

/// Generates a strided slice, possibly in reverse order.
bool slice(Generator &g) {
  Entry x = g.anyKind(1, 4);
  SmallVector<int64_t> offsets, sizes, strides;
  for (int64_t extent : x.shape()) {
    if (g.random.chance(1, 2)) {
      offsets.push_back(0);
      sizes.push_back(extent);
      strides.push_back(1);
      continue;
    }
    int64_t stride = g.random.chance(2, 3) ? 1 : g.random.between(1, 3);
    int64_t offset = g.random.below(extent);
    int64_t size = g.random.between(1, (extent - 1 - offset) / stride + 1);
    if (g.random.chance(1, 4)) {
      offset += (size - 1) * stride;
      stride = -stride;
    }
    offsets.push_back(offset);
    sizes.push_back(size);
    strides.push_back(stride);
  }
  g.give(nn::SliceOp::create(g.b, g.loc, x.value,
                             g.b.getDenseI64ArrayAttr(offsets),
                             g.b.getDenseI64ArrayAttr(sizes),
                             g.b.getDenseI64ArrayAttr(strides)),
         x.bound, x.exact);
  return true;
}

bool pad(Generator &g) {
  Entry x = g.anyKind(1, 4);
  SmallVector<int64_t> low, high, shape;
  for (int64_t extent : x.shape()) {
    bool grows = g.random.chance(1, 2);
    low.push_back(grows ? g.random.below(3) : 0);
    high.push_back(grows ? g.random.below(3) : 0);
    shape.push_back(low.back() + extent + high.back());
  }
  if (elements(shape) > 2 * g.kMaxElements)
    return false;
  double value = g.random.chance(1, 2) ? 0 : g.random.between(-2, 2);
  if (x.type().getElementType().isInteger(1))
    value = value != 0;
  g.give(nn::PadOp::create(g.b, g.loc, x.type().clone(shape), x.value, low,
                           high, APFloat(value)),
         std::max(x.bound, 2.0), x.exact);
  return true;
}

bool concat(Generator &g) {
  Entry x = g.anyKind(1, 4);
  int64_t dim = g.random.below(x.rank());
  SmallVector<Value> parts = {x.value};
  double bound = x.bound;
  bool exact = x.exact;
  for (int64_t i = 0, more = g.random.between(1, 2); i < more; ++i) {
    SmallVector<int64_t> shape(x.shape());
    if (g.random.chance(1, 2))
      shape[dim] = g.size();
    Entry y = g.like(x.type().clone(shape));
    parts.push_back(y.value);
    bound = std::max(bound, y.bound);
    exact &= y.exact;
  }
  g.random.shuffle(parts);
  Value result = nn::ConcatOp::create(g.b, g.loc, parts, dim);
  if (cast<RankedTensorType>(result.getType()).getNumElements() >
      2 * g.kMaxElements)
    return false;
  g.give(result, bound, exact);
  return true;
}

bool iota(Generator &g) {
  SmallVector<int64_t> shape = g.shape(1, 3);
  RankedTensorType type =
      g.random.chance(1, 2) ? g.floats(shape) : g.ints(shape);
  g.give(nn::IotaOp::create(g.b, g.loc, type, g.random.below(shape.size())), 12,
         true);
  return true;
}

bool save(Generator &g) {
  Entry x = g.anyKind();
  g.give(nn::SaveOp::create(g.b, g.loc, x.value), x.bound, x.exact);
  return true;
}

bool rematerialize(Generator &g) {
  Entry x = g.anyKind(), after = g.anyKind();
  g.give(nn::RematerializeOp::create(g.b, g.loc, x.value.getType(), x.value,
                                     after.value),
         x.bound, x.exact);
  return true;
}

} // namespace

ArrayRef<Family> cleave::random::shapeFamilies() {
  static const Family families[] = {
      {"broadcast", 8, broadcast},
      {"reshape", 12, reshape},
      {"transpose", 7, transpose},
      {"slice", 8, slice},
      {"pad", 6, pad},
      {"concat", 8, concat},
      {"iota", 4, iota},
      {"save", 4, save},
      {"rematerialize", 4, rematerialize},
  };
  return families;
}
