// Emits tensors whose elements are known during import as IR: small ones as
// constants, index grids and masks as nn.iota and comparisons, so that the IR
// never holds megabytes of elements.

#include "Build.h"

#include <cmath>

using namespace mlir;
using llvm::ArrayRef;
using llvm::Expected;
using llvm::Twine;

namespace cleave::importer {

/// The largest size of a constant in the IR, except for constants whose
/// elements are all equal.
static constexpr int64_t kMaxConstantBytes = 4096;

static RankedTensorType tensorType(OpBuilder &builder, Element type,
                                   ArrayRef<int64_t> shape) {
  return RankedTensorType::get(shape, toType(type, builder.getContext()));
}

Value Build::emitConstant(const HostTensor &tensor) {
  return arith::ConstantOp::create(builder, loc,
                                   tensor.toAttr(builder.getContext()));
}

Value Build::emitIota(Element type, int64_t size) {
  return nn::IotaOp::create(builder, loc, tensorType(builder, type, {size}), 0);
}

Value Build::emitBroadcast(Value value, ArrayRef<int64_t> shape,
                           ArrayRef<int64_t> dims) {
  auto type = cast<RankedTensorType>(value.getType()).clone(shape);
  if (type == value.getType())
    return value;
  return nn::BroadcastOp::create(builder, loc, type, value, dims);
}

/// Emits value * factor + constant.
static Value addConstant(OpBuilder &builder, Location loc, Value value,
                         double constant, double factor) {
  auto type = cast<RankedTensorType>(value.getType());
  auto splat = [&](double number) {
    return nn::createSplat(builder, loc, type, number);
  };
  if (factor != 1)
    value = arith::MulFOp::create(builder, loc, value, splat(factor));
  if (constant != 0)
    value = arith::AddFOp::create(builder, loc, value, splat(constant));
  return value;
}

/// Emits value * factor + constant for integers, which the doubles of
/// addConstant may not represent exactly.
static Value addInteger(OpBuilder &builder, Location loc, Value value,
                        int64_t constant, int64_t factor) {
  auto type = cast<RankedTensorType>(value.getType());
  auto splat = [&](int64_t number) -> Value {
    return arith::ConstantOp::create(
        builder, loc,
        DenseElementsAttr::get(type, Attribute(builder.getIntegerAttr(
                                         type.getElementType(), number))));
  };
  if (factor != 1)
    value = arith::MulIOp::create(builder, loc, value, splat(factor));
  if (constant != 0)
    value = arith::AddIOp::create(builder, loc, value, splat(constant));
  return value;
}

/// Calls `body` for each element of a tensor in row-major order, with its
/// index.
static void
forEachIndex(const HostTensor &tensor,
             llvm::function_ref<void(ArrayRef<int64_t>, int64_t)> body) {
  Shape index(tensor.rank(), 0);
  forEach(&tensor, tensor.shape(), [&](const int64_t *at) {
    body(index, *at);
    for (int64_t dim = tensor.rank() - 1; dim >= 0; --dim) {
      if (++index[dim] < tensor.shape()[dim])
        break;
      index[dim] = 0;
    }
  });
}

Value Build::tryAffine(const HostTensor &tensor) {
  if (tensor.type() == Element::Bool || isHostOnly(tensor.type()))
    return {};
  return tensor.holdsFloats() ? tryAffineFloats(tensor) : tryAffineInts(tensor);
}

/// Emits a tensor as the formula base + sum over dimensions of factor * index;
/// returns null if its elements do not follow such a formula. Short lists of
/// elements are not converted, since a list is clearer than a formula.
Value Build::tryAffineFloats(const HostTensor &tensor) {
  Shape zero(tensor.rank(), 0);
  double base = tensor.floatAt(tensor.positionOf(zero));
  llvm::SmallVector<double> factors;
  for (int64_t dim = 0; dim < tensor.rank(); ++dim) {
    Shape one = zero;
    one[dim] = 1;
    factors.push_back(tensor.floatAt(tensor.positionOf(one)) - base);
  }
  bool affine = std::isfinite(base);
  if (tensor.rank() == 1 && tensor.size() <= 16 &&
      (base != 0 || factors[0] != 1))
    return {};
  // The formula must give the elements exactly.
  for (double number : factors)
    affine &= number == std::trunc(number) && std::abs(number) < 256 &&
              base == std::trunc(base) && tensor.size() < 65536;
  forEachIndex(tensor, [&](ArrayRef<int64_t> index, int64_t at) {
    double expected = base, element = tensor.floatAt(at);
    for (auto [factor, i] : llvm::zip(factors, index))
      expected += factor * i;
    affine &= element == expected && (element != 0 || !std::signbit(element));
  });
  if (!affine)
    return {};
  Value sum;
  for (int64_t dim = 0; dim < tensor.rank(); ++dim) {
    Value term = emitIota(tensor.type(), tensor.shape()[dim]);
    term = addConstant(builder, loc, term, dim == 0 ? base : 0, factors[dim]);
    term = emitBroadcast(term, tensor.shape(), {dim});
    sum = sum ? Value(arith::AddFOp::create(builder, loc, sum, term)) : term;
  }
  return sum;
}

Value Build::tryAffineInts(const HostTensor &tensor) {
  Shape zero(tensor.rank(), 0);
  int64_t base = tensor.intAt(tensor.positionOf(zero));
  llvm::SmallVector<int64_t> factors;
  auto sumOf = [](int64_t a, int64_t b) { // wraps, as the elements do
    return int64_t(uint64_t(a) + uint64_t(b));
  };
  for (int64_t dim = 0; dim < tensor.rank(); ++dim) {
    Shape one = zero;
    one[dim] = 1;
    int64_t next = tensor.intAt(tensor.positionOf(one));
    factors.push_back(
        wrapTo(tensor.type(), int64_t(uint64_t(next) - uint64_t(base))));
  }
  if (tensor.rank() == 1 && tensor.size() <= 16 &&
      (base != 0 || factors[0] != 1))
    return {};
  bool affine = true;
  forEachIndex(tensor, [&](ArrayRef<int64_t> index, int64_t at) {
    int64_t expected = base;
    for (auto [factor, i] : llvm::zip(factors, index))
      expected = sumOf(expected, int64_t(uint64_t(factor) * uint64_t(i)));
    affine &= tensor.intAt(at) == wrapTo(tensor.type(), expected);
  });
  if (!affine)
    return {};
  Value sum;
  for (int64_t dim = 0; dim < tensor.rank(); ++dim) {
    Value term = emitIota(tensor.type(), tensor.shape()[dim]);
    term = addInteger(builder, loc, term, dim == 0 ? base : 0, factors[dim]);
    term = emitBroadcast(term, tensor.shape(), {dim});
    sum = sum ? Value(arith::AddIOp::create(builder, loc, sum, term)) : term;
  }
  return sum;
}

/// The diagonals low <= j - i <= high of a matrix.
struct Band {
  int64_t low, high;
};

/// Returns the smallest band low <= j - i <= high that contains all elements
/// [i, j] equal to `inside`; nullopt if there is no such element, or if the
/// band contains other elements, too.
static std::optional<Band> bandOf(const HostTensor &matrix, double inside) {
  int64_t rows = matrix.shape()[0], columns = matrix.shape()[1];
  auto at = [&](int64_t i, int64_t j) {
    double element = matrix.floatAt(matrix.positionOf({i, j}));
    return element == inside && std::signbit(element) == std::signbit(inside);
  };
  Band band{columns, -rows};
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      if (at(i, j)) {
        band.low = std::min(band.low, j - i);
        band.high = std::max(band.high, j - i);
      }
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      if (at(i, j) != (band.low <= j - i && j - i <= band.high))
        return std::nullopt;
  if (band.low > band.high)
    return std::nullopt; // nowhere: a splat
  return band;
}

/// Describes the matrix as one value in a band and another value outside of it.
struct TwoValues {
  Band band;
  double inside, outside;
};

static std::optional<TwoValues> twoValuesOf(const HostTensor &matrix) {
  if (matrix.rank() != 2 || matrix.size() == 0)
    return std::nullopt;
  if (matrix.type() == Element::Bool) {
    if (std::optional<Band> band = bandOf(matrix, 1))
      return TwoValues{*band, 1, 0};
    if (std::optional<Band> band = bandOf(matrix, 0))
      return TwoValues{*band, 0, 1};
    return std::nullopt;
  }
  if (!matrix.holdsFloats())
    return std::nullopt;
  double first = matrix.floatAt(matrix.positionOf({0, 0}));
  std::optional<double> second;
  bool isTwo = first == first;
  forEach(&matrix, matrix.shape(), [&](const int64_t *at) {
    double element = matrix.floatAt(*at);
    auto is = [&](double other) {
      return element == other && std::signbit(element) == std::signbit(other);
    };
    if (!is(first) && !second)
      second = element;
    isTwo &= is(first) || is(*second);
  });
  if (!isTwo || !second)
    return std::nullopt;
  if (std::optional<Band> band = bandOf(matrix, first))
    return TwoValues{*band, first, *second};
  if (std::optional<Band> band = bandOf(matrix, *second))
    return TwoValues{*band, *second, first};
  return std::nullopt;
}

bool isBand(const HostTensor &tensor) {
  HostTensor small = tensor.compressed();
  Shape shape;
  for (int64_t dim : small.liveDims())
    shape.push_back(tensor.shape()[dim]);
  Shape zero(tensor.rank(), 0), sizes(tensor.rank(), 1), ones(tensor.rank(), 1);
  for (int64_t dim : small.liveDims())
    sizes[dim] = tensor.shape()[dim];
  return twoValuesOf(small.sliced(zero, sizes, ones).reshaped(shape))
      .has_value();
}

Value Build::emitBand(int64_t rows, int64_t columns, int64_t low,
                      int64_t high) {
  Shape shape = {rows, columns};
  Value i = emitIota(Element::I64, rows), j = emitIota(Element::I64, columns);
  auto compare = [&](arith::CmpIPredicate predicate, int64_t edge) -> Value {
    Value bound =
        emitBroadcast(addInteger(builder, loc, i, edge, 1), shape, {0});
    return arith::CmpIOp::create(builder, loc, predicate,
                                 emitBroadcast(j, shape, {1}), bound);
  };
  Value mask;
  if (high < columns - 1)
    mask = compare(arith::CmpIPredicate::sle, high);
  if (low > 1 - rows) {
    Value lower = compare(arith::CmpIPredicate::sge, low);
    mask =
        mask ? arith::AndIOp::create(builder, loc, mask, lower) : Value(lower);
  }
  return mask;
}

/// Emits a matrix of two values, one of them in a band, as comparisons of two
/// iotas; returns null if the matrix is different. A bound that all elements
/// satisfy is left out: for a causal mask, only j - i <= 0 remains.
Value Build::tryBand(const HostTensor &tensor) {
  std::optional<TwoValues> found = twoValuesOf(tensor);
  if (!found)
    return {};
  auto [low, high] = found->band;
  int64_t rows = tensor.shape()[0], columns = tensor.shape()[1];
  Value mask = emitBand(rows, columns, low, high);
  if (!mask || (tensor.type() == Element::Bool && found->inside))
    return mask;
  RankedTensorType type = tensorType(builder, tensor.type(), {rows, columns});
  return arith::SelectOp::create(
      builder, loc, mask, nn::createSplat(builder, loc, type, found->inside),
      nn::createSplat(builder, loc, type, found->outside));
}

Expected<Value> Build::materialise(const HostTensor &tensor) {
  if (!toType(tensor.type(), builder.getContext()))
    return reason("values of type " + nameOf(tensor.type()) +
                  " are not supported");
  if (tensor.size() == 0 || tensor.isSplat())
    return emitConstant(tensor);
  // Only the dimensions along which elements vary.
  HostTensor small = tensor.compressed();
  Shape dims = small.liveDims(), shape;
  Shape zero(tensor.rank(), 0), sizes(tensor.rank(), 1), ones(tensor.rank(), 1);
  for (int64_t dim : dims) {
    shape.push_back(tensor.shape()[dim]);
    sizes[dim] = tensor.shape()[dim];
  }
  HostTensor live = small.sliced(zero, sizes, ones).reshaped(shape);
  Value value = tryAffine(live);
  if (!value)
    value = tryBand(live);
  if (!value) {
    int64_t bytes = live.size() * byteSize(live.type());
    if (bytes > kMaxConstantBytes)
      return reason("it needs a constant of " + Twine(bytes) + " bytes (" +
                    nameOf(live.type()) + spell(shape) +
                    ") that is no index grid, band or repetition");
    value = emitConstant(live);
  }
  return emitBroadcast(value, tensor.shape(), dims);
}

} // namespace cleave::importer
