// Operators that write at indices, and operators that create indices.

#include "Families.h"

#include <cmath>

using namespace mlir;
using llvm::ArrayRef;
using llvm::Error;
using llvm::Expected;
using llvm::Twine;

namespace cleave::importer {

namespace {

/// Returns the first row that known indices of shape [n, 1] address, if they
/// address consecutive rows; otherwise -1.
int64_t runOf(const Operand &indices, int64_t rows) {
  if (!indices.isHost() || indices.rank() != 2 || indices.shape[1] != 1 ||
      indices.shape[0] == 0 || indices.shape[0] > rows)
    return -1;
  llvm::SmallVector<int64_t> values = indices.host->ints();
  int64_t first = values[0] < 0 ? values[0] + rows : values[0];
  for (auto [place, value] : llvm::enumerate(values))
    if ((value < 0 ? value + rows : value) != first + int64_t(place))
      return -1;
  return first + int64_t(values.size()) <= rows ? first : -1;
}

/// Lowers the assignment x[first:first + n] = updates. Exporters write
/// assignments to slices as scatters with known indices.
Expected<Operand> writeRows(Node &node, int64_t first) {
  const Operand &data = node.input(0), &updates = node.input(2);
  Shape zero(data.rank(), 0), ones(data.rank(), 1), box = data.shape,
                                                    want = data.shape;
  int64_t end = first + updates.shape[0];
  want[0] = updates.shape[0];
  if (updates.shape != want || updates.type != data.type)
    return reason("updates " + nameOf(updates.type) + spell(updates.shape) +
                  " are no rows of data " + nameOf(data.type) +
                  spell(data.shape));
  llvm::SmallVector<Operand> pieces;
  if (first > 0) {
    box[0] = first;
    CLEAVE_TRY(before, node.slice(data, zero, box, ones));
    pieces.push_back(before);
  }
  pieces.push_back(updates);
  if (end < data.shape[0]) {
    zero[0] = end;
    box[0] = data.shape[0] - end;
    CLEAVE_TRY(after, node.slice(data, zero, box, ones));
    pieces.push_back(after);
  }
  return node.concat(pieces, 0);
}

Error lowerScatterND(Node &node) {
  if (int64_t first = node.input(0).rank()
                          ? runOf(node.input(1), node.input(0).shape[0])
                          : -1;
      first >= 0 && !node.input(2).isHost() && node.input(2).rank() &&
      node.stringAttr("reduction", "none") == "none")
    return one(node, writeRows(node, first));
  if (node.input(1).isHost() && !node.input(2).isHost() &&
      node.stringAttr("reduction", "none") == "add")
    return reason("adds rows at indices that the file fixes; where a router "
                  "chose them, tracing has kept the choice that it made for "
                  "its sample: export the model so that indices are computed");
  if (Error error = allKnown(node, 3))
    return error;
  std::string reduction = node.stringAttr("reduction", "none");
  if (reduction != "none")
    return reason("reduction '" + reduction + "' is not supported");
  for (size_t i = 0; i < 3; ++i)
    if (product(node.input(i).shape) > HostTensor::kMaxElements)
      return reason("a constant of shape " + spell(node.input(i).shape) +
                    " is too large to evaluate");
  HostTensor result = node.input(0).host->compact();
  const HostTensor &indices = *node.input(1).host;
  HostTensor updates = node.input(2).host->compact();
  if (indices.rank() == 0 || indices.shape().back() > result.rank())
    return reason("indices " + spell(indices.shape()) + " do not fit data " +
                  spell(result.shape()));
  int64_t depth = indices.shape().back();
  llvm::SmallVector<int64_t> flat = indices.ints();
  int64_t inner = product(result.shape().drop_front(depth));
  int64_t rows = depth ? int64_t(flat.size()) / depth
                       : product(indices.shape().drop_back());
  if (updates.size() != rows * inner)
    return reason("updates " + spell(updates.shape()) + " do not fit indices " +
                  spell(indices.shape()));
  for (int64_t row = 0; row < rows; ++row) {
    int64_t at = 0;
    for (int64_t dim = 0; dim < depth; ++dim) {
      int64_t size = result.shape()[dim], index = flat[row * depth + dim];
      if (index < -size || index >= size)
        return reason("an index is outside a dimension of size " + Twine(size));
      at = at * size + (index < 0 ? index + size : index);
    }
    for (int64_t i = 0; i < inner; ++i)
      copyElement(result, at * inner + i, updates, row * inner + i);
  }
  node.set(0, Operand(result));
  return Error::success();
}

Error lowerNonZero(Node &node) {
  if (Error error = allKnown(node, 1))
    return error;
  const HostTensor &input = *node.input(0).host;
  if (input.size() > HostTensor::kMaxElements)
    return reason("a constant of shape " + spell(input.shape()) +
                  " is too large to evaluate");
  llvm::SmallVector<Shape> found;
  Shape index(input.rank(), 0);
  for (int64_t n = 0, count = input.size(); n < count; ++n) {
    if (input.floatAt(input.positionOf(index)) != 0)
      found.push_back(index);
    for (int64_t dim = input.rank() - 1; dim >= 0; --dim) {
      if (++index[dim] < input.shape()[dim])
        break;
      index[dim] = 0;
    }
  }
  HostTensor result(Element::I64, {input.rank(), int64_t(found.size())});
  for (auto [n, at] : llvm::enumerate(found))
    for (auto [dim, i] : llvm::enumerate(at))
      result.setInt(dim * found.size() + n, i);
  node.set(0, Operand(result));
  return Error::success();
}

Error lowerCumSum(Node &node) {
  if (Error error = allKnown(node, 2))
    return error;
  const HostTensor &input = *node.input(0).host;
  CLEAVE_TRY(axis,
             Node::axisOf(node.input(1).splatInt().value_or(0), input.rank()));
  bool exclusive = node.intAttr("exclusive", 0);
  bool reverse = node.intAttr("reverse", 0);
  // The input may repeat its elements along a dimension other than the axis
  // (stride 0). Then the sums are repeated along this dimension as well, so
  // they are computed only once.
  Shape zero(input.rank(), 0), sizes(input.shape()), ones(input.rank(), 1);
  for (int64_t dim = 0; dim < input.rank(); ++dim)
    if (dim != axis && input.strides()[dim] == 0)
      sizes[dim] = std::min<int64_t>(sizes[dim], 1);
  if (product(sizes) > HostTensor::kMaxElements)
    return reason("a constant of shape " + spell(input.shape()) +
                  " is too large to evaluate");
  HostTensor source = input.sliced(zero, sizes, ones);
  HostTensor result(input.type(), sizes);
  Shape rows = sizes;
  rows[axis] = std::min<int64_t>(rows[axis], 1);
  HostTensor from = source.sliced(zero, rows, ones);
  HostTensor to = result.sliced(zero, rows, ones);
  int64_t length = sizes[axis];
  forEach({&from, &to}, rows, [&](const int64_t *at) {
    double sum = 0;
    uint64_t count = 0; // of integers, which wrap
    for (int64_t i = 0; i < length; ++i) {
      int64_t k = reverse ? length - 1 - i : i;
      int64_t read = at[0] + k * source.strides()[axis];
      int64_t write = at[1] + k * result.strides()[axis];
      double nextSum = sum + source.floatAt(read);
      uint64_t nextCount = count + uint64_t(source.intAt(read));
      if (source.holdsFloats())
        result.setFloat(write, exclusive ? sum : nextSum);
      else
        result.setInt(write, int64_t(exclusive ? count : nextCount));
      sum = nextSum;
      count = nextCount;
    }
  });
  node.set(0, Operand(result.broadcastTo(input.shape()).compressed()));
  return Error::success();
}

/// Returns the index of the greatest element along a dimension, for known
/// elements. The dimension stays with size 1. Among equal elements the first is
/// taken, or the last if `last` is true; NaN counts as the greatest.
HostTensor argMaxKnown(const HostTensor &input, int64_t axis, bool last) {
  Shape shape(input.shape()), zero(input.rank(), 0), ones(input.rank(), 1);
  int64_t length = shape[axis];
  shape[axis] = 1;
  HostTensor result(Element::I64, shape);
  HostTensor rows = input.sliced(zero, shape, ones);
  bool isUnsigned = input.type() == Element::U64;
  auto isGreater = [&](int64_t a, int64_t b) {
    if (input.holdsFloats())
      return !std::isnan(input.floatAt(b)) &&
             (std::isnan(input.floatAt(a)) ||
              input.floatAt(a) > input.floatAt(b));
    return isUnsigned ? uint64_t(input.intAt(a)) > uint64_t(input.intAt(b))
                      : input.intAt(a) > input.intAt(b);
  };
  forEach({&rows, &result}, shape, [&](const int64_t *at) {
    int64_t best = 0, step = input.strides()[axis];
    for (int64_t i = 1; i < length; ++i)
      if (last ? !isGreater(at[0] + best * step, at[0] + i * step)
               : isGreater(at[0] + i * step, at[0] + best * step))
        best = i;
    result.setInt(at[1], best);
  });
  return result;
}

Error lowerArgMax(Node &node) {
  const Operand &input = node.input(0);
  CLEAVE_TRY(axis, Node::axisOf(node.intAttr("axis", 0), input.rank()));
  Shape shape = input.shape;
  if (shape[axis] == 0)
    return reason("it has no elements along dimension " + Twine(axis));
  bool last = node.intAttr("select_last_index", 0);
  if (input.isHost() && mayEvaluate(input.type, *input.host) &&
      product(shape) <= HostTensor::kMaxElements) {
    Operand result(argMaxKnown(*input.host, axis, last));
    if (!node.intAttr("keepdims", 1))
      shape.erase(shape.begin() + axis);
    else
      shape[axis] = 1;
    return one(node, node.reshape(result, shape));
  }
  if (last)
    return node.expectAttr("select_last_index", 0, 0);
  CLEAVE_TRY(value, node.value(input));
  shape.erase(shape.begin() + axis);
  auto type = RankedTensorType::get(shape, node.builder.getI64Type());
  Operand result(
      nn::ArgMaxOp::create(node.builder, node.loc, type, value, axis));
  if (node.intAttr("keepdims", 1)) {
    shape.insert(shape.begin() + axis, 1);
    return one(node, node.reshape(result, shape));
  }
  node.set(0, result);
  return Error::success();
}

/// Returns whether the indices were computed by an operation such as TopK, so
/// that none is negative.
bool isNeverNegative(const Operand &indices) {
  Value value = indices.value;
  while (value) {
    Operation *op = value.getDefiningOp();
    if (isa_and_nonnull<nn::TopKOp, nn::ArgMaxOp>(op))
      return true;
    if (!isa_and_nonnull<nn::ReshapeOp, nn::TransposeOp, nn::SliceOp,
                         arith::ExtSIOp, arith::TruncIOp>(op))
      return false;
    value = op->getOperand(0);
  }
  return false;
}

/// Lowers OneHot: the result is `on` where the index equals the position along
/// the new axis, and `off` elsewhere.
Error lowerOneHot(Node &node) {
  const Operand &indices = node.input(0), &values = node.input(2);
  std::optional<int64_t> depth = node.input(1).splatInt();
  if (!depth || !values.isHost() || values.host->size() != 2)
    return reason("its depth and values must be known when importing");
  if (*depth < 1 || *depth > HostTensor::kMaxElements)
    return reason("its depth is " + Twine(*depth) + ", expected 1 to " +
                  Twine(HostTensor::kMaxElements));
  int64_t rank = indices.rank() + 1;
  CLEAVE_TRY(axis, Node::axisOf(node.intAttr("axis", -1), rank));
  Shape shape = indices.shape, grid(rank, 1);
  shape.insert(shape.begin() + axis, 1);
  grid[axis] = *depth;
  CLEAVE_TRY(column, node.reshape(indices, shape));
  CLEAVE_TRY(wide, node.cast(column, Element::I64));
  HostTensor positions(Element::I64, {*depth});
  for (int64_t i = 0; i < *depth; ++i)
    positions.setInt(i, i);
  static const Elementwise kEqual = {
      nullptr, [](const int64_t *v) { return int64_t(v[0] == v[1]); },
      [](OpBuilder &b, Location loc, ArrayRef<Value> v) -> Value {
        return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, v[0],
                                     v[1]);
      }};
  // Indices below zero count from the end.
  static const Elementwise kNegative = {
      nullptr, [](const int64_t *v) { return int64_t(v[0] < 0); },
      [](OpBuilder &b, Location loc, ArrayRef<Value> v) -> Value {
        auto type = cast<RankedTensorType>(v[0].getType());
        return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, v[0],
                                     nn::createSplat(b, loc, type, 0));
      }};
  if (!isNeverNegative(wide)) {
    CLEAVE_TRY(below, node.map(kNegative, Element::Bool, {wide}));
    CLEAVE_TRY(fromEnd, add(node, wide, Operand(HostTensor::ofInt(*depth))));
    CLEAVE_TRY(inside, node.select(below, fromEnd, wide));
    wide = inside;
  }
  Operand counts(positions.reshaped(grid));
  CLEAVE_TRY(hits, node.map(kEqual, Element::Bool, {wide, counts}));
  auto element = [&](int64_t index) {
    return Operand(values.host->sliced({index}, {1}, {1}).reshaped({}));
  };
  return one(node, node.select(hits, element(1), element(0)));
}

} // namespace

void addIndexingOps(std::vector<OnnxOp> &table) {
  auto op = [&](llvm::StringRef name, int tier, llvm::StringRef becomes,
                LowerFunction lower) {
    table.push_back({name, kOldest, kNewest, tier, becomes, lower});
  };
  op("ArgMax", 1, "nn.argmax", lowerArgMax);
  op("CumSum", 1, "", lowerCumSum);
  op("NonZero", 1, "", lowerNonZero);
  op("OneHot", 1, "arith.select", lowerOneHot);
  op("ScatterND", 1, "", lowerScatterND);
}

} // namespace cleave::importer
