// Evaluation or emission of movement, casts and elementwise functions, and how
// known tensors enter the IR: small ones as constants, index grids and masks as
// nn.iota and comparisons, never as megabytes of elements.

#include "Build.h"

#include "llvm/ADT/StringExtras.h"

#include <cmath>

using namespace mlir;
using llvm::ArrayRef;
using llvm::Expected;
using llvm::Twine;

namespace cleave::importer {

/// The largest constant of the IR that is not a repeated element.
static constexpr int64_t kMaxConstantBytes = 4096;

std::string spell(ArrayRef<int64_t> shape) {
  std::string text = "[";
  for (auto [index, size] : llvm::enumerate(shape))
    text += (index ? ", " : "") + std::to_string(size);
  return text + "]";
}

Operand::Operand(HostTensor tensor)
    : type(tensor.type()), shape(tensor.shape()), host(std::move(tensor)) {}

Operand::Operand(Value value) : value(value) {
  auto tensorType = cast<RankedTensorType>(value.getType());
  type = fromType(tensorType.getElementType());
  shape.assign(tensorType.getShape().begin(), tensorType.getShape().end());
}

std::optional<double> Operand::splatValue() const {
  if (!host || host->size() == 0 || !host->isSplat())
    return std::nullopt;
  return host->floatAt(host->positionOf(Shape(shape.size(), 0)));
}

/// Dimensions along which the elements vary.
static Shape liveDims(const HostTensor &tensor) {
  Shape live;
  for (int64_t dim = 0; dim < tensor.rank(); ++dim)
    if (tensor.strides()[dim] != 0 && tensor.shape()[dim] != 1)
      live.push_back(dim);
  return live;
}

bool mayEvaluate(Element type, const HostTensor &like) {
  if (!isFloat(type))
    return true;
  Shape live = liveDims(like);
  return live.empty() || (live.size() == 1 && like.shape()[live[0]] <= 1024);
}

//===----------------------------------------------------------------------===//
// Known tensors as values
//===----------------------------------------------------------------------===//

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

static Value addConstant(OpBuilder &builder, Location loc, Value value,
                         double constant, double factor) {
  auto type = cast<RankedTensorType>(value.getType());
  bool isFloat = isa<FloatType>(type.getElementType());
  auto apply = [&](bool multiply, double number) {
    Value other = nn::createSplat(builder, loc, type, number);
    if (isFloat)
      value = multiply ? arith::MulFOp::create(builder, loc, value, other)
                       : Value(arith::AddFOp::create(builder, loc, value, other));
    else
      value = multiply ? arith::MulIOp::create(builder, loc, value, other)
                       : Value(arith::AddIOp::create(builder, loc, value, other));
  };
  if (factor != 1)
    apply(true, factor);
  if (constant != 0)
    apply(false, constant);
  return value;
}

/// base + sum of factor * index, over all dimensions of a compact tensor; null
/// where the elements are something else.
Value Build::tryAffine(const HostTensor &tensor) {
  if (tensor.type() == Element::Bool || !toType(tensor.type(), builder.getContext()))
    return {};
  Shape zero(tensor.rank(), 0);
  double base = tensor.floatAt(tensor.positionOf(zero));
  llvm::SmallVector<double> factors;
  for (int64_t dim = 0; dim < tensor.rank(); ++dim) {
    Shape one = zero;
    one[dim] = 1;
    factors.push_back(tensor.floatAt(tensor.positionOf(one)) - base);
  }
  bool affine = std::isfinite(base);
  // A short list is clearer than its formula, and the formula must be exact.
  if (tensor.rank() == 1 && tensor.size() <= 16 &&
      (base != 0 || factors[0] != 1))
    return {};
  if (tensor.holdsFloats())
    for (double number : factors)
      affine &= number == std::trunc(number) && std::abs(number) < 256 &&
                base == std::trunc(base) && tensor.size() < 65536;
  Shape index = zero;
  forEach(&tensor, tensor.shape(), [&](const int64_t *at) {
    double expected = base;
    for (auto [factor, i] : llvm::zip(factors, index))
      expected += factor * i;
    affine &= tensor.floatAt(*at) == expected;
    for (int64_t dim = tensor.rank() - 1; dim >= 0; --dim) {
      if (++index[dim] < tensor.shape()[dim])
        break;
      index[dim] = 0;
    }
  });
  if (!affine)
    return {};
  Value sum;
  for (int64_t dim = 0; dim < tensor.rank(); ++dim) {
    Value term = emitIota(tensor.type(), tensor.shape()[dim]);
    term = addConstant(builder, loc, term, dim == 0 ? base : 0, factors[dim]);
    term = emitBroadcast(term, tensor.shape(), {dim});
    if (!sum)
      sum = term;
    else if (tensor.holdsFloats())
      sum = arith::AddFOp::create(builder, loc, sum, term);
    else
      sum = arith::AddIOp::create(builder, loc, sum, term);
  }
  return sum;
}

/// A boolean [s, t] that is true where low <= j - i <= high, as comparisons of
/// two iotas; null where it is no band. The causal mask is low = -inf, high = 0.
Value Build::tryBand(const HostTensor &tensor) {
  if (tensor.type() != Element::Bool || tensor.rank() != 2)
    return {};
  int64_t rows = tensor.shape()[0], columns = tensor.shape()[1];
  auto at = [&](int64_t i, int64_t j) {
    return tensor.intAt(tensor.positionOf({i, j})) != 0;
  };
  // The band's edges, from the true elements; "no edge" where they touch the
  // tensor's corner.
  int64_t low = columns, high = -rows;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      if (at(i, j)) {
        low = std::min(low, j - i);
        high = std::max(high, j - i);
      }
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      if (at(i, j) != (low <= j - i && j - i <= high))
        return {};
  if (low > high)
    return {}; // all false: a splat
  Shape shape = {rows, columns};
  Value i = emitIota(Element::I64, rows), j = emitIota(Element::I64, columns);
  auto compare = [&](arith::CmpIPredicate predicate, int64_t edge) -> Value {
    Value bound = emitBroadcast(addConstant(builder, loc, i, edge, 1), shape, {0});
    return arith::CmpIOp::create(builder, loc, predicate,
                                 emitBroadcast(j, shape, {1}), bound);
  };
  Value mask;
  if (high < columns - 1)
    mask = compare(arith::CmpIPredicate::sle, high);
  if (low > 1 - rows) {
    Value lower = compare(arith::CmpIPredicate::sge, low);
    mask = mask ? arith::AndIOp::create(builder, loc, mask, lower)
                : Value(lower);
  }
  return mask;
}

Expected<Value> Build::materialise(const HostTensor &tensor) {
  if (!toType(tensor.type(), builder.getContext()))
    return reason("values of type " + nameOf(tensor.type()) +
                  " are not supported");
  if (tensor.size() == 0 || tensor.isSplat())
    return emitConstant(tensor);
  // Only the dimensions along which elements vary.
  HostTensor small = tensor.compressed();
  Shape dims = liveDims(small), shape;
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

Expected<Value> Build::value(const Operand &operand) {
  if (operand.value)
    return operand.value;
  if (operand.host)
    return materialise(*operand.host);
  if (operand.file)
    return argument(*operand.file);
  return reason("a required input is missing");
}

//===----------------------------------------------------------------------===//
// Movement
//===----------------------------------------------------------------------===//

Expected<Operand> Build::reshape(const Operand &operand,
                                 ArrayRef<int64_t> shape) {
  if (operand.host)
    return Operand(operand.host->reshaped(shape));
  Expected<Value> input = value(operand);
  if (!input)
    return input.takeError();
  auto type = cast<RankedTensorType>((*input).getType()).clone(shape);
  if (type == (*input).getType())
    return Operand(*input);
  return Operand(nn::ReshapeOp::create(builder, loc, type, *input));
}

Expected<Operand> Build::transpose(const Operand &operand,
                                   ArrayRef<int64_t> permutation) {
  if (operand.host)
    return Operand(operand.host->transposed(permutation));
  Expected<Value> input = value(operand);
  if (!input)
    return input.takeError();
  return Operand(nn::TransposeOp::create(builder, loc, *input, permutation));
}

Expected<Operand> Build::broadcast(const Operand &operand,
                                   ArrayRef<int64_t> shape) {
  if (ArrayRef<int64_t>(operand.shape) == shape)
    return operand;
  if (operand.host)
    return Operand(operand.host->broadcastTo(shape));
  Expected<Value> input = value(operand);
  if (!input)
    return input.takeError();
  // Sizes of 1 disappear first: nn.broadcast repeats along new dimensions only.
  Shape kept, dims;
  size_t lead = shape.size() - operand.shape.size();
  for (auto [dim, size] : llvm::enumerate(operand.shape))
    if (size == shape[lead + dim]) {
      kept.push_back(size);
      dims.push_back(lead + dim);
    }
  Expected<Operand> narrow = reshape(*input, kept);
  if (!narrow)
    return narrow.takeError();
  return Operand(emitBroadcast(narrow->value, shape, dims));
}

Expected<Value> Build::valueAs(const Operand &operand,
                               ArrayRef<int64_t> shape) {
  Expected<Operand> wide = broadcast(operand, shape);
  if (!wide)
    return wide.takeError();
  return value(*wide);
}

Expected<Operand> Build::slice(const Operand &operand,
                               ArrayRef<int64_t> offsets,
                               ArrayRef<int64_t> sizes,
                               ArrayRef<int64_t> strides) {
  if (operand.host)
    return Operand(operand.host->sliced(offsets, sizes, strides));
  Expected<Value> input = value(operand);
  if (!input)
    return input.takeError();
  bool whole = llvm::all_of(offsets, [](int64_t offset) { return !offset; }) &&
               sizes == ArrayRef<int64_t>(operand.shape) &&
               llvm::all_of(strides, [](int64_t step) { return step == 1; });
  if (whole)
    return Operand(*input);
  return Operand(
      nn::SliceOp::create(builder, loc, *input, offsets, sizes, strides));
}

Expected<Operand> Build::concat(ArrayRef<Operand> operands, int64_t dim) {
  if (llvm::all_of(operands, [](const Operand &o) { return o.isHost(); })) {
    Shape shape = operands[0].shape;
    shape[dim] = 0;
    // Dimensions that repeat in all operands repeat in the result.
    Shape live = shape;
    for (const Operand &operand : operands)
      shape[dim] += operand.shape[dim];
    for (int64_t d = 0; d < int64_t(shape.size()); ++d)
      live[d] = d == dim ||
                        llvm::any_of(operands,
                                     [&](const Operand &o) {
                                       return o.host->strides()[d] != 0;
                                     })
                    ? shape[d]
                    : 1;
    if (product(live) > HostTensor::kMaxElements)
      return reason("a constant of shape " + spell(shape) +
                    " is too large to evaluate");
    HostTensor result(operands[0].type, live);
    int64_t offset = 0;
    for (const Operand &operand : operands) {
      Shape zero(live.size(), 0), sizes = live, ones(live.size(), 1);
      sizes[dim] = operand.shape[dim];
      HostTensor source = operand.host->sliced(zero, sizes, ones);
      Shape start = zero;
      start[dim] = offset;
      HostTensor target = result.sliced(start, sizes, ones);
      forEach({&source, &target}, sizes, [&](const int64_t *at) {
        if (source.holdsFloats())
          target.setFloat(at[1], source.floatAt(at[0]));
        else
          target.setInt(at[1], source.intAt(at[0]));
      });
      offset += operand.shape[dim];
    }
    return Operand(result.broadcastTo(shape).compressed());
  }
  llvm::SmallVector<Value> inputs;
  for (const Operand &operand : operands) {
    if (operand.shape[dim] == 0)
      continue;
    Expected<Value> input = value(operand);
    if (!input)
      return input.takeError();
    inputs.push_back(*input);
  }
  if (inputs.empty())
    return operands[0];
  if (inputs.size() == 1)
    return Operand(inputs[0]);
  return Operand(nn::ConcatOp::create(builder, loc, inputs, dim));
}

//===----------------------------------------------------------------------===//
// Elementwise
//===----------------------------------------------------------------------===//

Operand Build::splat(Element type, ArrayRef<int64_t> shape, double value) {
  return Operand(HostTensor::splat(type, shape, value));
}

Expected<Operand> Build::cast(const Operand &operand, Element type) {
  if (operand.type == type)
    return operand;
  if (!isFloat(type) && !isInteger(type))
    return reason("casts to " + nameOf(type) + " are not supported");
  if (operand.host && mayEvaluate(type, *operand.host))
    return Operand(operand.host->cast(type));
  Expected<Value> input = value(operand);
  if (!input)
    return input.takeError();
  Type element = toType(type, builder.getContext());
  if (!element)
    return reason("casts to " + nameOf(type) + " are not supported");
  auto from = mlir::cast<RankedTensorType>((*input).getType());
  RankedTensorType to = from.clone(element);
  auto emit = [&](auto op) {
    return Operand(decltype(op)::create(builder, loc, to, *input).getResult());
  };
  bool fromFloat = isFloat(operand.type), toFloat = isFloat(type);
  if (type == Element::Bool) {
    Value zero = nn::createSplat(builder, loc, from, 0);
    if (fromFloat)
      return Operand(arith::CmpFOp::create(
          builder, loc, arith::CmpFPredicate::UNE, *input, zero));
    return Operand(arith::CmpIOp::create(builder, loc,
                                         arith::CmpIPredicate::ne, *input, zero));
  }
  if (fromFloat && toFloat)
    return byteSize(type) > byteSize(operand.type) ? emit(arith::ExtFOp())
                                                   : emit(arith::TruncFOp());
  if (fromFloat)
    return emit(arith::FPToSIOp());
  if (toFloat)
    return operand.type == Element::Bool ? emit(arith::UIToFPOp())
                                         : emit(arith::SIToFPOp());
  if (operand.type == Element::Bool)
    return emit(arith::ExtUIOp());
  return byteSize(type) > byteSize(operand.type) ? emit(arith::ExtSIOp())
                                                 : emit(arith::TruncIOp());
}

Expected<Operand> Build::map(const Elementwise &function, Element type,
                             ArrayRef<Operand> operands) {
  bool floats = isFloat(operands.back().type);
  // Only a condition, the first of three, may have another type.
  for (const Operand &operand : operands.drop_front(operands.size() == 3))
    if (operand.type != operands.back().type)
      return reason("its operands have types " + nameOf(operand.type) +
                    " and " + nameOf(operands.back().type));
  bool known =
      llvm::all_of(operands, [](const Operand &o) { return o.isHost(); });
  if (known) {
    // Whether the result may be evaluated depends on where it varies.
    Shape live, shape;
    for (const Operand &operand : operands) {
      Expected<Shape> joined = broadcastShapes(shape, operand.shape);
      if (!joined)
        return joined.takeError();
      shape = *joined;
    }
    int64_t varying = 0, count = 1;
    for (int64_t dim = 0; dim < int64_t(shape.size()); ++dim)
      if (llvm::any_of(operands, [&](const Operand &o) {
            return o.host->broadcastTo(shape).strides()[dim] != 0;
          })) {
        ++varying;
        count *= shape[dim];
      }
    known = !isFloat(type) || varying == 0 || (varying == 1 && count <= 1024);
  }
  if (known && (floats ? bool(function.onFloats) : bool(function.onInts))) {
    llvm::SmallVector<const HostTensor *, 3> tensors;
    for (const Operand &operand : operands)
      tensors.push_back(&*operand.host);
    Expected<HostTensor> result =
        floats ? mapFloats(type, tensors, function.onFloats)
               : mapInts(type, tensors, function.onInts);
    if (!result)
      return result.takeError();
    return Operand(std::move(*result));
  }
  if (!function.emit)
    return reason("it is not supported for elements of type " +
                  nameOf(operands.back().type));
  Shape shape;
  for (const Operand &operand : operands) {
    Expected<Shape> joined = broadcastShapes(shape, operand.shape);
    if (!joined)
      return joined.takeError();
    shape = *joined;
  }
  llvm::SmallVector<Value> values;
  for (const Operand &operand : operands) {
    Expected<Value> input = valueAs(operand, shape);
    if (!input)
      return input.takeError();
    values.push_back(*input);
  }
  Value result = function.emit(builder, loc, values);
  if (!result)
    return reason("it is not supported for elements of type " +
                  nameOf(operands.back().type));
  return Operand(result);
}

Expected<Operand> Build::select(const Operand &condition, const Operand &then,
                                const Operand &otherwise) {
  if (std::optional<double> always = condition.splatValue()) {
    Shape shape;
    for (const Operand *operand : {&condition, &then, &otherwise}) {
      Expected<Shape> joined = broadcastShapes(shape, operand->shape);
      if (!joined)
        return joined.takeError();
      shape = *joined;
    }
    return broadcast(*always ? then : otherwise, shape);
  }
  Elementwise function;
  function.onInts = [](const int64_t *v) { return v[0] ? v[1] : v[2]; };
  function.onFloats = [](const double *v) { return v[0] ? v[1] : v[2]; };
  function.emit = [](OpBuilder &builder, Location loc,
                     ArrayRef<Value> v) -> Value {
    return arith::SelectOp::create(builder, loc, v[0], v[1], v[2]);
  };
  return map(function, then.type, {condition, then, otherwise});
}

} // namespace cleave::importer
