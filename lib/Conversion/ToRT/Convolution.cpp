// Expands convolutions and pools into strided slices, one per element of the
// window. The slices are concatenated (im2col) for one matrix product, or
// combined elementwise. For the gradient of the input, the gradients of the
// slices are scattered back to their positions and added.

#include "SelectLibrary.h"

#include "cleave/Support/ValueUtils.h"

using namespace mlir;
using namespace cleave;

namespace {

using Sizes = SmallVector<int64_t>;

/// Slices of the input, one per element of the window (a tap). `input` and
/// `output` are the types of the input and the output, with shape [n, c,
/// spatial...].
class Taps {
public:
  template <typename Op>
  Taps(Op op, ArrayRef<int64_t> kernel, RankedTensorType input,
       RankedTensorType output)
      : b(op), loc(op.getLoc()), strides(op.getStrides()),
        dilations(op.getDilations()), low(op.getLow()), high(op.getHigh()),
        kernel(kernel), input(input), output(output) {
    Sizes at(kernel.size(), 0);
    for (int64_t i = 0; i < llvm::product_of(kernel); ++i) {
      all.push_back(at);
      for (size_t dim = kernel.size(); dim-- > 0 && ++at[dim] == kernel[dim];)
        at[dim] = 0;
    }
  }

  ArrayRef<Sizes> offsets() const { return all; }

  Value padded(Value x, double value) {
    Sizes before(2, 0), after(2, 0), shape(typeOf(x).getShape());
    before.append(low.begin(), low.end());
    after.append(high.begin(), high.end());
    for (size_t dim = 0; dim < shape.size(); ++dim)
      shape[dim] += before[dim] + after[dim];
    if (typeOf(x).getShape() == ArrayRef<int64_t>(shape))
      return x;
    return nn::PadOp::create(b, loc, typeOf(x).clone(shape), x, before, after,
                             APFloat(value));
  }

  /// Returns the slice that contains, for every window of a padded input, its
  /// element number `k`.
  Value tap(Value padded, ArrayRef<int64_t> k) {
    Sizes offsets(2, 0), steps(2, 1),
        shape(typeOf(padded).getShape().take_front(2));
    for (size_t dim = 0; dim < k.size(); ++dim) {
      offsets.push_back(k[dim] * dilations[dim]);
      steps.push_back(strides[dim]);
      shape.push_back(output.getShape()[dim + 2]);
    }
    return nn::SliceOp::create(b, loc, typeOf(padded).clone(shape), padded,
                               offsets, shape, steps);
  }

  /// The inverse of `tap`: returns a tensor of the input's shape that has
  /// element `k` of every window at its position; other elements are zero.
  Value place(Value value, ArrayRef<int64_t> k) {
    for (size_t s = 0; s < k.size(); ++s) {
      int64_t dim = s + 2, count = typeOf(value).getDimSize(dim),
              stride = strides[s];
      if (stride > 1) { // insert zeros
        Sizes shape(typeOf(value).getShape());
        shape.insert(shape.begin() + dim + 1, 1);
        value = reshape(value, shape);
        Sizes before(shape.size(), 0), after(shape.size(), 0);
        after[dim + 1] = stride - 1;
        shape[dim + 1] = stride;
        value = nn::PadOp::create(b, loc, typeOf(value).clone(shape), value,
                                  before, after, APFloat(0.0));
        shape.erase(shape.begin() + dim + 1);
        shape[dim] = count * stride;
        value = reshape(value, shape);
      }
      Sizes shape(typeOf(value).getShape()), before(shape.size(), 0),
          after(shape.size(), 0);
      before[dim] = k[s] * dilations[s];
      after[dim] = std::max<int64_t>(0, low[s] + input.getDimSize(dim) -
                                            before[dim] - shape[dim]);
      shape[dim] += before[dim] + after[dim];
      value = nn::PadOp::create(b, loc, typeOf(value).clone(shape), value,
                                before, after, APFloat(0.0));
      Sizes offsets(shape.size(), 0), ones(shape.size(), 1);
      offsets[dim] = low[s];
      shape[dim] = input.getDimSize(dim);
      value = nn::SliceOp::create(b, loc, typeOf(value).clone(shape), value,
                                  offsets, shape, ones);
    }
    return value;
  }

  Value reshape(Value value, ArrayRef<int64_t> shape) {
    if (typeOf(value).getShape() == shape)
      return value;
    return nn::ReshapeOp::create(b, loc, typeOf(value).clone(shape), value);
  }

  Value add(Value sum, Value value) {
    return sum ? Value(arith::AddFOp::create(b, loc, sum, value)) : value;
  }

  OpBuilder b;
  Location loc;
  Sizes strides, dilations, low, high, kernel;
  RankedTensorType input, output;

private:
  SmallVector<Sizes> all;
};

/// Lowers a convolution to matrix products. Dimensions are named n (samples), g
/// (groups), c and m (input and output channels per group), k (element of the
/// window) and o (output position).
class Convolution {
public:
  template <typename Op>
  Convolution(Op op, RankedTensorType input, RankedTensorType filter,
              RankedTensorType output)
      : taps(op, filter.getShape().drop_front(2), input, output),
        groups(op.getGroups()), samples(input.getDimSize(0)),
        channels(filter.getDimSize(1)), features(filter.getDimSize(0) / groups),
        window(taps.offsets().size()),
        positions(llvm::product_of(output.getShape().drop_front(2))) {}

  /// Returns the windows of the input as columns, with shape [n, g, c, k, o].
  Value columns(Value input) {
    Value padded = taps.padded(input, 0.0);
    SmallVector<Value> parts;
    for (ArrayRef<int64_t> k : taps.offsets())
      parts.push_back(taps.reshape(taps.tap(padded, k),
                                   {samples, groups, channels, 1, positions}));
    return parts.size() == 1
               ? parts[0]
               : nn::ConcatOp::create(taps.b, taps.loc, ValueRange(parts), 3)
                     .getResult();
  }

  Value rows(Value output) {
    return taps.reshape(output, {samples, groups, features, positions});
  }
  Value weights(Value filter) {
    return taps.reshape(filter, {groups, features, channels, window});
  }

  Value contract(StringRef equation, Value lhs, Value rhs,
                 ArrayRef<int64_t> shape) {
    return nn::EinsumOp::create(taps.b, taps.loc, typeOf(lhs).clone(shape),
                                equation, lhs, rhs);
  }

  Taps taps;
  int64_t groups, samples, channels, features, window, positions;
};

} // namespace

void cleave::expandConv(nn::ConvOp op) {
  Convolution c(op, typeOf(op.getInput()), typeOf(op.getFilter()),
                op.getType());
  Value product = c.contract("ngcko,gmck->ngmo", c.columns(op.getInput()),
                             c.weights(op.getFilter()),
                             {c.samples, c.groups, c.features, c.positions});
  op.replaceAllUsesWith(c.taps.reshape(product, op.getType().getShape()));
  op.erase();
}

void cleave::expandConvInputGrad(nn::ConvInputGradOp op) {
  Convolution c(op, op.getType(), typeOf(op.getFilter()),
                typeOf(op.getCotangent()));
  Value columns = c.contract(
      "ngmo,gmck->ngcko", c.rows(op.getCotangent()), c.weights(op.getFilter()),
      {c.samples, c.groups, c.channels, c.window, c.positions});
  Value sum;
  Sizes spatial(typeOf(op.getCotangent()).getShape());
  spatial[1] = c.groups * c.channels;
  for (auto [index, k] : llvm::enumerate(c.taps.offsets())) {
    Sizes offsets = {0, 0, 0, int64_t(index), 0}, ones(5, 1),
          shape = {c.samples, c.groups, c.channels, 1, c.positions};
    Value part =
        nn::SliceOp::create(c.taps.b, c.taps.loc, typeOf(columns).clone(shape),
                            columns, offsets, shape, ones);
    sum = c.taps.add(sum, c.taps.place(c.taps.reshape(part, spatial), k));
  }
  op.replaceAllUsesWith(sum);
  op.erase();
}

void cleave::expandConvFilterGrad(nn::ConvFilterGradOp op) {
  Convolution c(op, typeOf(op.getInput()), op.getType(),
                typeOf(op.getCotangent()));
  Value product = c.contract("ngmo,ngcko->gmck", c.rows(op.getCotangent()),
                             c.columns(op.getInput()),
                             {c.groups, c.features, c.channels, c.window});
  op.replaceAllUsesWith(c.taps.reshape(product, op.getType().getShape()));
  op.erase();
}

static Value largest(Taps &taps, Value padded) {
  Value best;
  for (ArrayRef<int64_t> k : taps.offsets()) {
    Value tap = taps.tap(padded, k);
    best =
        best
            ? arith::MaximumFOp::create(taps.b, taps.loc, best, tap).getResult()
            : tap;
  }
  return best;
}

constexpr double kLowest = -std::numeric_limits<double>::infinity();

void cleave::expandPool(nn::PoolOp op) {
  Taps taps(op, op.getWindow(), typeOf(op.getInput()), op.getType());
  Value result;
  if (op.getKind() == nn::PoolKind::Max) {
    result = largest(taps, taps.padded(op.getInput(), kLowest));
  } else {
    Value padded = taps.padded(op.getInput(), 0.0);
    for (ArrayRef<int64_t> k : taps.offsets())
      result = taps.add(result, taps.tap(padded, k));
  }
  op.replaceAllUsesWith(result);
  op.erase();
}

void cleave::expandPoolGrad(nn::PoolGradOp op) {
  Taps taps(op, op.getWindow(), typeOf(op.getInput()),
            typeOf(op.getCotangent()));
  OpBuilder &b = taps.b;
  Value cotangent = op.getCotangent(), sum;
  if (op.getKind() == nn::PoolKind::Sum) {
    for (ArrayRef<int64_t> k : taps.offsets())
      sum = taps.add(sum, taps.place(cotangent, k));
  } else {
    // If several elements of a window are the maximum, the first one gets the
    // cotangent.
    Value padded = taps.padded(op.getInput(), kLowest),
          best = largest(taps, padded);
    Value left = cotangent,
          zero = nn::createSplat(b, op.getLoc(), typeOf(cotangent), 0.0);
    for (ArrayRef<int64_t> k : taps.offsets()) {
      Value below = arith::CmpFOp::create(
          b, op.getLoc(), arith::CmpFPredicate::OLT, taps.tap(padded, k), best);
      Value taken = arith::SelectOp::create(b, op.getLoc(), below, zero, left);
      left = arith::SelectOp::create(b, op.getLoc(), below, left, zero);
      sum = taps.add(sum, taps.place(taken, k));
    }
  }
  op.replaceAllUsesWith(sum);
  op.erase();
}
