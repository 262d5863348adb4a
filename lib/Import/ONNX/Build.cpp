// Evaluates data movement, casts and elementwise functions during import, or
// emits operations for them.

#include "Build.h"

#include "llvm/ADT/StringExtras.h"

#include <cmath>

using namespace mlir;
using llvm::ArrayRef;
using llvm::Expected;
using llvm::Twine;

namespace cleave::importer {

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
  if (product(shape) == 0) // it has no unknown elements
    host = HostTensor(type, shape);
}

std::optional<double> Operand::splatValue() const {
  if (!host || host->size() == 0 || !host->isSplat())
    return std::nullopt;
  return host->floatAt(host->positionOf(Shape(shape.size(), 0)));
}

std::optional<int64_t> Operand::splatInt() const {
  if (!host || host->size() == 0 || !host->isSplat())
    return std::nullopt;
  return host->intAt(host->positionOf(Shape(shape.size(), 0)));
}

bool isHostOnly(Element type) {
  return isInteger(type) && type != Element::Bool && type != Element::I32 &&
         type != Element::I64;
}

static void widenBeside(llvm::MutableArrayRef<Operand> operands,
                        llvm::function_ref<bool(const Operand &)> isComputed) {
  if (llvm::none_of(operands, isComputed))
    return;
  for (Operand &operand : operands)
    if (operand.host && operand.type != computedType(operand.type)) {
      auto chosen = operand.chosen;
      int64_t dim = operand.chosenDim;
      operand = Operand(operand.host->cast(computedType(operand.type)));
      operand.chosen = chosen;
      operand.chosenDim = dim;
    }
}

void widenBesideValues(llvm::MutableArrayRef<Operand> operands) {
  // An operand without elements counts as known. If it is f32, the other
  // operands are converted to f32, as beside a value of the IR: the result has
  // no elements either, and only needs the right type.
  widenBeside(operands, [](const Operand &o) {
    return o.value || o.file ||
           (o.host && o.type == Element::F32 && o.host->size() == 0);
  });
}

void widenToOneType(llvm::MutableArrayRef<Operand> operands) {
  widenBeside(operands, [](const Operand &o) {
    return o.value || o.file || (o.host && o.type == Element::F32);
  });
}

bool mayEvaluate(Element type, const HostTensor &like) {
  if (!isFloat(type) || isHostOnly(type) || isHostOnly(like.type()) ||
      like.size() == 0)
    return true;
  Shape live = like.liveDims();
  return live.empty() || (live.size() == 1 && like.shape()[live[0]] <= 1024);
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
  if (operand.host) {
    if (operand.host->size() > HostTensor::kMaxElements &&
        !operand.host->isReshapedInPlace(shape))
      return reason("a constant of shape " + spell(shape) +
                    " is too large to evaluate");
    return Operand(operand.host->reshaped(shape));
  }
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
  // Dimensions of size 1 that grow are dropped first, because nn.broadcast only
  // adds dimensions.
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
    // Dimensions that are repeated (stride 0) in all operands stay repeated in
    // the result.
    Shape live = shape;
    for (const Operand &operand : operands)
      shape[dim] += operand.shape[dim];
    for (int64_t d = 0; d < int64_t(shape.size()); ++d)
      live[d] = d == dim || llvm::any_of(operands,
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
      forEach({&source, &target}, sizes,
              [&](const int64_t *at) { target.setFrom(at[1], source, at[0]); });
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
  type = computedType(type);
  Element source = computedType(operand.type);
  if (source == type)
    return Operand(*input);
  Type element = toType(type, builder.getContext());
  if (!element)
    return reason("casts to " + nameOf(type) +
                  " are supported only where the input is known when "
                  "importing");
  auto from = mlir::cast<RankedTensorType>((*input).getType());
  RankedTensorType to = from.clone(element);
  auto emit = [&](auto op) {
    return Operand(decltype(op)::create(builder, loc, to, *input).getResult());
  };
  bool fromFloat = isFloat(source), toFloat = isFloat(type);
  if (type == Element::Bool) {
    Value zero = nn::createSplat(builder, loc, from, 0);
    if (fromFloat)
      return Operand(arith::CmpFOp::create(
          builder, loc, arith::CmpFPredicate::UNE, *input, zero));
    return Operand(arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ne,
                                         *input, zero));
  }
  if (fromFloat && toFloat)
    return byteSize(type) > byteSize(source) ? emit(arith::ExtFOp())
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

/// Applies an elementwise function. If the elements of all operands are known,
/// the function is evaluated during import, unless the result is large. The
/// size of a result is measured by the dimensions along which some operand
/// varies (does not only repeat its elements): their number and the product of
/// their sizes. A large result is computed by operations of the IR instead: a
/// mask for all pairs of positions of a long sequence becomes two index grids
/// and a comparison.
Expected<Operand> Build::map(const Elementwise &function, Element type,
                             ArrayRef<Operand> inputs) {
  llvm::SmallVector<Operand> operands(inputs);
  widenToOneType(operands);
  bool floats = isFloat(operands.back().type);
  // Only a select has three operands. Its first operand, the condition, may
  // have another type than the others.
  for (const Operand &operand :
       ArrayRef<Operand>(operands).drop_front(operands.size() == 3))
    if (operand.type != operands.back().type)
      return reason("its operands have types " + nameOf(operand.type) +
                    " and " + nameOf(operands.back().type));
  bool known =
      llvm::all_of(operands, [](const Operand &o) { return o.isHost(); });
  if (known) {
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
    // The largest number of integers that is evaluated during import.
    constexpr int64_t kMaxGrid = int64_t(1) << 24;
    bool mustBeKnown = llvm::any_of(
        operands, [](const Operand &o) { return isHostOnly(o.type); });
    known = isFloat(type) && !mustBeKnown
                ? varying == 0 || (varying == 1 && count <= 1024) || !count
                : varying < 2 || count <= kMaxGrid;
  }
  if (known && (floats ? bool(function.onFloats) : bool(function.onInts))) {
    llvm::SmallVector<const HostTensor *, 3> tensors;
    for (const Operand &operand : operands)
      tensors.push_back(&*operand.host);
    bool isUnsigned =
        operands.back().type == Element::U64 && function.onUnsigned;
    Expected<HostTensor> result =
        floats       ? mapFloats(type, tensors, function.onFloats)
        : isUnsigned ? mapUnsigned(type, tensors, function.onUnsigned)
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
  if (product(shape) == 0)
    return Operand(HostTensor(type, shape));
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

Expected<Operand> Build::select(const Operand &condition, const Operand &ifTrue,
                                const Operand &ifFalse) {
  llvm::SmallVector<Operand> branches = {ifTrue, ifFalse};
  widenToOneType(branches);
  const Operand &then = branches[0], &otherwise = branches[1];
  if (std::optional<double> always = condition.splatValue()) {
    Shape shape;
    for (const Operand *operand : {&condition, &then, &otherwise}) {
      Expected<Shape> joined = broadcastShapes(shape, operand->shape);
      if (!joined)
        return joined.takeError();
      shape = *joined;
    }
    if (then.type != otherwise.type)
      return reason("its operands have types " + nameOf(then.type) + " and " +
                    nameOf(otherwise.type));
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
