// Operators that move elements: reshape, transpose, concat, slice, and so on.

#include "Families.h"

#include <onnx/onnx_pb.h>

#include <cmath>
#include <limits>

using llvm::ArrayRef;
using llvm::Error;
using llvm::Expected;
using llvm::Twine;

namespace cleave::importer {

namespace {

Error lowerReshape(Node &node) {
  const Operand &input = node.input(0);
  CLEAVE_TRY(want, node.knownInts(1, "shape"));
  bool allowZero = node.intAttr("allowzero", 0);
  int64_t open = -1, known = 1;
  Shape shape = want;
  for (auto [dim, size] : llvm::enumerate(shape)) {
    if (size == 0 && !allowZero) {
      if (int64_t(dim) >= input.rank())
        return reason("shape " + spell(want) + " copies dimension " +
                      Twine(dim) + " of a rank-" + Twine(input.rank()) +
                      " input");
      size = input.shape[dim];
    }
    if (size == -1) {
      if (open != -1)
        return reason("shape " + spell(want) + " has two sizes -1");
      open = dim;
    } else if (size < 0) {
      return reason("shape " + spell(want) + " has a negative size");
    }
  }
  Shape given = shape;
  if (open != -1)
    given.erase(given.begin() + open);
  known = product(given);
  int64_t count = product(input.shape);
  if (open != -1) {
    if (known == 0 || count % known)
      return reason("shape " + spell(want) + " does not divide input " +
                    spell(input.shape));
    shape[open] = count / known;
  }
  if (product(shape) != count)
    return reason("shape " + spell(shape) + " has " + Twine(product(shape)) +
                  " elements, but the input " + spell(input.shape) + " has " +
                  Twine(count));
  return one(node, node.reshape(input, shape));
}

Error lowerFlatten(Node &node) {
  const Operand &input = node.input(0);
  int64_t axis = node.intAttr("axis", 1), rank = input.rank();
  if (axis < -rank || axis > rank)
    return reason("axis " + Twine(axis) + " is out of range for rank " +
                  Twine(rank));
  if (axis < 0)
    axis += rank;
  ArrayRef<int64_t> shape = input.shape;
  return one(node, node.reshape(input, {product(shape.take_front(axis)),
                                        product(shape.drop_front(axis))}));
}

Error lowerUnsqueeze(Node &node) {
  const Operand &input = node.input(0);
  CLEAVE_TRY(given, node.axes(13, 1));
  if (!given)
    return reason("it has no axes");
  int64_t rank = input.rank() + given->size();
  CLEAVE_TRY(axes, Node::axesOf(*given, rank));
  Shape shape(input.shape);
  for (int64_t axis : axes)
    shape.insert(shape.begin() + axis, 1);
  return one(node, node.reshape(input, shape));
}

Error lowerSqueeze(Node &node) {
  const Operand &input = node.input(0);
  CLEAVE_TRY(given, node.axes(13, 1));
  Shape axes;
  if (given) {
    CLEAVE_TRY(sorted, Node::axesOf(*given, input.rank()));
    axes = sorted;
  } else {
    for (auto [dim, size] : llvm::enumerate(input.shape))
      if (size == 1)
        axes.push_back(dim);
  }
  Shape shape;
  for (auto [dim, size] : llvm::enumerate(input.shape)) {
    if (!llvm::is_contained(axes, dim))
      shape.push_back(size);
    else if (size != 1)
      return reason("it drops dimension " + Twine(dim) + " of size " +
                    Twine(size));
  }
  return one(node, node.reshape(input, shape));
}

Error lowerTranspose(Node &node) {
  const Operand &input = node.input(0);
  Shape permutation;
  for (int64_t dim = input.rank() - 1; dim >= 0; --dim)
    permutation.push_back(dim);
  if (std::optional<Shape> given = node.intsAttr("perm"))
    permutation = *given;
  Shape sorted = permutation;
  llvm::sort(sorted);
  if (!llvm::equal(sorted, llvm::seq<int64_t>(input.rank())))
    return reason("perm " + spell(permutation) + " is no permutation of " +
                  Twine(input.rank()) + " dimensions");
  return one(node, node.transpose(input, permutation));
}

Error lowerExpand(Node &node) {
  const Operand &input = node.input(0);
  CLEAVE_TRY(want, node.knownInts(1, "shape"));
  if (llvm::any_of(want, [](int64_t size) { return size < 0; }))
    return reason("shape " + spell(want) + " has a negative size");
  CLEAVE_TRY(shape, broadcastShapes(input.shape, want));
  return one(node, node.broadcast(input, shape));
}

/// Lowers Tile. Elements are repeated by broadcasting a new dimension before
/// each repeated dimension.
Error lowerTile(Node &node) {
  const Operand &input = node.input(0);
  CLEAVE_TRY(repeats, node.knownInts(1, "repeats"));
  if (int64_t(repeats.size()) != input.rank())
    return reason("it has " + Twine(repeats.size()) + " repeats for rank " +
                  Twine(input.rank()));
  Shape narrow, wide, result;
  for (auto [size, count] : llvm::zip(input.shape, repeats)) {
    if (count < 0)
      return reason("repeats " + spell(repeats) + " are negative");
    if (product({size, count}) > kMaxSize)
      return reason("repeats " + spell(repeats) + " of shape " +
                    spell(input.shape) + " give more than " + Twine(kMaxSize) +
                    " elements");
    if (count != 1) {
      narrow.push_back(1);
      wide.push_back(count);
    }
    narrow.push_back(size);
    wide.push_back(size);
    result.push_back(size * count);
  }
  CLEAVE_TRY(split, node.reshape(input, narrow));
  CLEAVE_TRY(repeated, node.broadcast(split, wide));
  return one(node, node.reshape(repeated, result));
}

Error lowerConcat(Node &node) {
  llvm::SmallVector<Operand> operands;
  for (size_t i = 0; i < node.numInputs(); ++i)
    operands.push_back(node.input(i));
  if (operands.empty())
    return reason("it has no inputs");
  widenToOneType(operands);
  CLEAVE_TRY(axis, Node::axisOf(node.intAttr("axis", 0), operands[0].rank()));
  if (Error error = joinable(operands, axis, "its inputs have types"))
    return error;
  return one(node, node.concat(operands, axis));
}

Error lowerSplit(Node &node) {
  const Operand &input = node.input(0);
  CLEAVE_TRY(axis, Node::axisOf(node.intAttr("axis", 0), input.rank()));
  int64_t size = input.shape[axis], parts = node.numOutputs();
  Shape sizes;
  if (node.opset() < 13) {
    if (std::optional<Shape> given = node.intsAttr("split"))
      sizes = *given;
  } else if (node.has(1)) {
    CLEAVE_TRY(given, node.knownInts(1, "split"));
    sizes = given;
  }
  if (sizes.empty()) {
    int64_t count = node.intAttr("num_outputs", parts);
    if (count != parts)
      return reason("num_outputs is " + Twine(count) + " for " + Twine(parts) +
                    " outputs");
    int64_t chunk = (size + count - 1) / count;
    for (int64_t i = 0; i < count; ++i)
      sizes.push_back(std::clamp<int64_t>(size - i * chunk, 0, chunk));
  }
  int64_t total = 0;
  bool negative = false;
  for (int64_t part : sizes) {
    negative |= part < 0;
    total += std::clamp<int64_t>(part, 0, kMaxSize);
  }
  if (negative || total != size || int64_t(sizes.size()) < parts)
    return reason("it splits size " + Twine(size) + " into " + spell(sizes) +
                  " for " + Twine(parts) + " outputs");
  Shape offsets(input.rank(), 0), ones(input.rank(), 1), box = input.shape;
  for (int64_t i = 0; i < parts; ++i) {
    box[axis] = sizes[i];
    CLEAVE_TRY(part, node.slice(input, offsets, box, ones));
    node.set(i, part);
    offsets[axis] += sizes[i];
  }
  return Error::success();
}

Error lowerSlice(Node &node) {
  const Operand &input = node.input(0);
  CLEAVE_TRY(starts, node.knownInts(1, "starts"));
  CLEAVE_TRY(ends, node.knownInts(2, "ends"));
  Shape axes, steps(starts.size(), 1);
  for (size_t i = 0; i < starts.size(); ++i)
    axes.push_back(i);
  if (node.has(3)) {
    CLEAVE_TRY(given, node.knownInts(3, "axes"));
    axes = given;
  }
  if (node.has(4)) {
    CLEAVE_TRY(given, node.knownInts(4, "steps"));
    steps = given;
  }
  if (ends.size() != starts.size() || axes.size() != starts.size() ||
      steps.size() != starts.size())
    return reason("its starts, ends, axes and steps differ in length");
  Shape offsets(input.rank(), 0), sizes = input.shape, strides(input.rank(), 1);
  for (size_t i = 0; i < axes.size(); ++i) {
    CLEAVE_TRY(axis, Node::axisOf(axes[i], input.rank()));
    int64_t size = input.shape[axis], step = steps[i];
    if (step == 0)
      return reason("its step is 0");
    // Exporters write "to the end" as a number far beyond the end.
    bool isTable = input.file || (input.isHost() && isFloat(input.type));
    constexpr int64_t far = std::numeric_limits<int32_t>::max();
    node.isCutShort |= isTable && ((ends[i] > size && ends[i] < far) ||
                                   (starts[i] < -size && starts[i] > -far));
    auto from = [&](int64_t at, int64_t low, int64_t high) {
      if (at < 0)
        at = at < -size ? low - 1 : at + size;
      return std::max(low, std::min(at, high)); // high < low: no elements
    };
    // Ends beyond the tensor are clamped to its end, as in NumPy.
    int64_t begin =
        step > 0 ? from(starts[i], 0, size) : from(starts[i], 0, size - 1);
    int64_t end =
        step > 0 ? from(ends[i], 0, size) : from(ends[i], -1, size - 1);
    int64_t length = step > 0 ? end - begin : begin - end;
    int64_t count = length <= 0 ? 0
                    : step > 0
                        ? (length - 1) / step + 1
                        : int64_t(uint64_t(length - 1) / -uint64_t(step)) + 1;
    offsets[axis] = begin;
    sizes[axis] = size == 0 ? 0 : std::max<int64_t>(count, 0);
    strides[axis] = step;
    if (sizes[axis] <= 1)
      strides[axis] = 1;
    if (sizes[axis] == 0)
      offsets[axis] = 0;
  }
  return one(node, node.slice(input, offsets, sizes, strides));
}

/// The padding value of nn.pad is a double, which cannot represent all integers
/// beyond 2^53. A padding with such an integer becomes a concatenation with
/// constants.
Expected<Operand> surround(Node &node, Operand inside, const HostTensor &value,
                           ArrayRef<int64_t> low, ArrayRef<int64_t> high) {
  for (int64_t dim = 0; dim < inside.rank(); ++dim) {
    if (low[dim] == 0 && high[dim] == 0)
      continue;
    Shape before = inside.shape, after = inside.shape;
    before[dim] = low[dim];
    after[dim] = high[dim];
    CLEAVE_TRY(wider, node.concat({Operand(value.broadcastTo(before)), inside,
                                   Operand(value.broadcastTo(after))},
                                  dim));
    inside = wider;
  }
  return inside;
}

Error lowerPad(Node &node) {
  const Operand &input = node.input(0);
  std::string mode = node.stringAttr("mode", "constant");
  if (mode != "constant")
    return reason("mode '" + mode + "' is not supported, expected constant");
  CLEAVE_TRY(pads, node.knownInts(1, "pads"));
  Shape axes;
  for (int64_t dim = 0; dim < input.rank(); ++dim)
    axes.push_back(dim);
  if (node.has(3)) {
    CLEAVE_TRY(given, node.knownInts(3, "axes"));
    axes.clear();
    for (int64_t axis : given) {
      CLEAVE_TRY(index, Node::axisOf(axis, input.rank()));
      axes.push_back(index);
    }
  }
  if (pads.size() != 2 * axes.size())
    return reason("it has " + Twine(pads.size()) + " pads for " +
                  Twine(axes.size()) + " axes");
  HostTensor value(input.type, {});
  if (node.has(2)) {
    const Operand &given = node.input(2);
    if (!given.isHost() || product(given.shape) != 1)
      return reason("its constant_value depends on data");
    value = given.host->reshaped({}).cast(input.type);
  }
  Shape low(input.rank(), 0), high(input.rank(), 0), shape = input.shape;
  Shape offsets(input.rank(), 0), sizes = input.shape, ones(input.rank(), 1);
  for (size_t i = 0; i < axes.size(); ++i) {
    int64_t before = pads[i], after = pads[axes.size() + i], dim = axes[i];
    if (std::max(before, after) > kMaxSize ||
        std::min(before, after) < -kMaxSize)
      return reason("its pads " + spell(pads) + " are too large");
    low[dim] = std::max<int64_t>(before, 0);
    high[dim] = std::max<int64_t>(after, 0);
    // Negative pads cut.
    offsets[dim] = std::max<int64_t>(-before, 0);
    sizes[dim] -= offsets[dim] + std::max<int64_t>(-after, 0);
    if (sizes[dim] < 0)
      return reason("its pads cut more than there is");
    shape[dim] = sizes[dim] + low[dim] + high[dim];
  }
  CLEAVE_TRY(cut, node.slice(input, offsets, sizes, ones));
  if (cut.isHost()) {
    if (product(shape) > HostTensor::kMaxElements)
      return reason("a constant of shape " + spell(shape) +
                    " is too large to evaluate");
    HostTensor result = value.broadcastTo(shape).compact();
    HostTensor inner = result.sliced(low, sizes, ones);
    forEach({&*cut.host, &inner}, sizes,
            [&](const int64_t *at) { inner.setFrom(at[1], *cut.host, at[0]); });
    return one(node, Operand(result));
  }
  double number = value.floatAt(0);
  constexpr double inexact = 9007199254740992; // 2^53, or 2^53 + 1
  if (isInteger(input.type) && std::abs(number) >= inexact)
    return one(node, surround(node, cut, value, low, high));
  CLEAVE_TRY(inside, node.value(cut));
  auto type = mlir::cast<mlir::RankedTensorType>(inside.getType());
  node.set(
      0, Operand(nn::PadOp::create(node.builder, node.loc, type.clone(shape),
                                   inside, low, high, llvm::APFloat(number))));
  return Error::success();
}

/// Lowers Trilu, which keeps one triangle of the last two dimensions and sets
/// the rest to zero.
Error lowerTrilu(Node &node) {
  const Operand &input = node.input(0);
  if (input.rank() < 2)
    return reason("its input has rank " + Twine(input.rank()) +
                  ", expected at least 2");
  int64_t offset = 0;
  if (node.has(1)) {
    std::optional<int64_t> k = node.input(1).splatInt();
    if (!k)
      return reason("its input 'k' depends on data");
    // An offset of the diagonal beyond a corner of the matrix has the same
    // effect as one just beyond it.
    offset = std::clamp(*k, -input.shape.end()[-2] - 1, input.shape.back() + 1);
  }
  bool upper = node.intAttr("upper", 1);
  Shape square(input.shape.end() - 2, input.shape.end());
  Operand zero = node.splat(input.type, input.shape, 0);
  constexpr int64_t none = std::numeric_limits<int32_t>::max();
  if (product(square) > HostTensor::kMaxElements) {
    mlir::Value band = upper
                           ? node.emitBand(square[0], square[1], offset, none)
                           : node.emitBand(square[0], square[1], -none, offset);
    return one(node, band ? node.select(Operand(band), input, zero)
                          : llvm::Expected<Operand>(input));
  }
  HostTensor mask(Element::Bool, square);
  for (int64_t i = 0; i < square[0]; ++i)
    for (int64_t j = 0; j < square[1]; ++j)
      mask.setInt(i * square[1] + j, upper ? j - i >= offset : j - i <= offset);
  return one(node, node.select(Operand(mask), input, zero));
}

} // namespace

void addShapeOps(std::vector<OnnxOp> &table) {
  auto op = [&](llvm::StringRef name, int tier, llvm::StringRef becomes,
                LowerFunction lower) {
    table.push_back({name, kOldest, kNewest, tier, becomes, lower});
  };
  op("Concat", 1, "nn.concat", lowerConcat);
  op("Expand", 1, "nn.broadcast", lowerExpand);
  op("Flatten", 1, "nn.reshape", lowerFlatten);
  op("Pad", 1, "nn.pad", lowerPad);
  op("Reshape", 1, "nn.reshape", lowerReshape);
  op("Slice", 1, "nn.slice", lowerSlice);
  op("Split", 1, "nn.slice", lowerSplit);
  op("Squeeze", 1, "nn.reshape", lowerSqueeze);
  op("Tile", 1, "nn.broadcast", lowerTile);
  op("Transpose", 1, "nn.transpose", lowerTranspose);
  table.push_back({"Trilu", 14, kNewest, 1, "arith.select", lowerTrilu});
  op("Unsqueeze", 1, "nn.reshape", lowerUnsqueeze);
}

} // namespace cleave::importer
