// Lowers TopK, and operators that gather or scatter at the indices that TopK
// returns. Since the indices of a row are distinct, such a gather or scatter
// becomes a sum over comparisons of indices.

#include "Families.h"

#include <cmath>

using namespace mlir;
using llvm::ArrayRef;
using llvm::Error;
using llvm::Expected;
using llvm::Twine;

namespace cleave::importer {

namespace {

Value emitNegated(OpBuilder &b, Location loc, ArrayRef<Value> v) {
  return arith::NegFOp::create(b, loc, v[0]);
}

/// [0, rank) with `axis` at the end.
Shape axisLast(int64_t rank, int64_t axis) {
  Shape order;
  for (int64_t dim = 0; dim < rank; ++dim)
    if (dim != axis)
      order.push_back(dim);
  order.push_back(axis);
  return order;
}

Shape inverse(ArrayRef<int64_t> permutation) {
  Shape result(permutation.size());
  for (auto [to, from] : llvm::enumerate(permutation))
    result[from] = to;
  return result;
}

/// Evaluates TopK on known elements: selects the k greatest or least along the
/// axis, in order. Among equal elements the first ones are taken; NaN is the
/// greatest.
void topKKnown(Node &node, int64_t axis, int64_t k) {
  const HostTensor &input = *node.input(0).host;
  bool largest = node.intAttr("largest", 1);
  Shape shape(input.shape()), rows = shape, zero(input.rank(), 0),
                              ones(input.rank(), 1);
  shape[axis] = k;
  rows[axis] = 1;
  HostTensor values(input.type(), shape), indices(Element::I64, shape);
  HostTensor from = input.sliced(zero, rows, ones),
             to = values.sliced(zero, rows, ones);
  bool isUnsigned = input.type() == Element::U64;
  auto isLess = [&](int64_t a, int64_t b) {
    if (input.holdsFloats())
      return !std::isnan(input.floatAt(a)) &&
             (std::isnan(input.floatAt(b)) ||
              input.floatAt(a) < input.floatAt(b));
    return isUnsigned ? uint64_t(input.intAt(a)) < uint64_t(input.intAt(b))
                      : input.intAt(a) < input.intAt(b);
  };
  forEach({&from, &to}, rows, [&](const int64_t *at) {
    llvm::SmallVector<int64_t> order =
        llvm::to_vector(llvm::seq<int64_t>(input.shape()[axis]));
    llvm::sort(order, [&](int64_t a, int64_t b) {
      int64_t left = at[0] + a * input.strides()[axis],
              right = at[0] + b * input.strides()[axis];
      if (!largest)
        std::swap(left, right);
      return isLess(right, left) || (!isLess(left, right) && a < b);
    });
    for (int64_t i = 0; i < k; ++i) {
      int64_t write = at[1] + i * values.strides()[axis];
      values.setFrom(write, input, at[0] + order[i] * input.strides()[axis]);
      indices.setInt(write, order[i]);
    }
  });
  node.set(0, Operand(values));
  node.set(1, Operand(indices));
}

Error lowerTopK(Node &node) {
  const Operand &input = node.input(0);
  int64_t rank = input.rank();
  CLEAVE_TRY(axis, Node::axisOf(node.intAttr("axis", -1), rank));
  CLEAVE_TRY(count, node.knownInts(1, "k"));
  if (count.size() != 1 || count[0] < 1 || count[0] > input.shape[axis])
    return reason("k is " + (count.empty() ? Twine("empty") : Twine(count[0])) +
                  ", expected 1 to " + Twine(input.shape[axis]) +
                  ", the size of dimension " + Twine(axis) + " of " +
                  spell(input.shape));
  // Sorting takes longer than other steps do.
  constexpr int64_t mostSorted = int64_t(1) << 20;
  if (input.isHost() && mayEvaluate(input.type, *input.host) &&
      product(input.shape) <= mostSorted) {
    topKKnown(node, axis, count[0]);
    return Error::success();
  }
  if (input.isHost() && !isFloat(input.type))
    return reason("a constant of shape " + spell(input.shape) +
                  " is too large to sort");
  if (!isFloat(input.type))
    return reason("it is not supported for elements of type " +
                  nameOf(input.type) + " that depend on data");
  static const Elementwise kNegated = {[](const double *v) { return -v[0]; },
                                       nullptr, emitNegated};
  bool largest = node.intAttr("largest", 1);
  Shape order = axisLast(rank, axis);
  CLEAVE_TRY(rows, node.transpose(input, order));
  CLEAVE_TRY(signedRows, largest ? Expected<Operand>(rows)
                                 : node.map(kNegated, input.type, {rows}));
  CLEAVE_TRY(value, node.value(signedRows));
  auto type = cast<RankedTensorType>(value.getType());
  Shape shape(type.getShape());
  shape.back() = count[0];
  auto top = nn::TopKOp::create(
      node.builder, node.loc, type.clone(shape),
      RankedTensorType::get(shape, node.builder.getI64Type()), value, count[0]);
  CLEAVE_TRY(values, node.transpose(Operand(top.getValues()), inverse(order)));
  CLEAVE_TRY(indices,
             node.transpose(Operand(top.getIndices()), inverse(order)));
  CLEAVE_TRY(found, largest ? Expected<Operand>(values)
                            : node.map(kNegated, input.type, {values}));
  node.set(0, found);
  if (node.wants(1))
    node.set(1, indices);
  return Error::success();
}

/// Returns hits[..., i, j], which is true if indices[..., j] equals i, for all
/// i in [0, size).
Expected<Operand> hitsOf(Node &node, const Operand &indices, int64_t size) {
  Shape shape = indices.shape;
  shape.insert(shape.end() - 1, 1);
  CLEAVE_TRY(columns, node.reshape(indices, shape));
  CLEAVE_TRY(wide, node.cast(columns, Element::I64));
  HostTensor positions(Element::I64, {size, 1});
  for (int64_t i = 0; i < size; ++i)
    positions.setInt(i, i);
  static const Elementwise kEqual = {
      nullptr, nullptr,
      [](OpBuilder &b, Location loc, ArrayRef<Value> v) -> Value {
        return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, v[0],
                                     v[1]);
      }};
  return node.map(kEqual, Element::Bool, {wide, Operand(positions)});
}

Error lowerScatterElements(Node &node) {
  const Operand &data = node.input(0), &indices = node.input(1),
                &updates = node.input(2);
  int64_t rank = data.rank();
  CLEAVE_TRY(axis, Node::axisOf(node.intAttr("axis", 0), rank));
  std::string reduction = node.stringAttr("reduction", "none");
  if (reduction != "none" && reduction != "add")
    return reason("reduction '" + reduction + "' is not supported");
  if (!areOfTopK(indices, axis))
    return reason(
        "it is supported only at the indices of a TopK along the same "
        "dimension");
  Shape want = indices.shape;
  want[axis] = data.shape[axis];
  if (data.shape != want || updates.shape != indices.shape ||
      updates.type != data.type)
    return reason("data " + nameOf(data.type) + spell(data.shape) +
                  ", indices " + spell(indices.shape) + " and updates " +
                  nameOf(updates.type) + spell(updates.shape) + " do not fit");
  Shape order = axisLast(rank, axis);
  CLEAVE_TRY(at, node.transpose(indices, order));
  CLEAVE_TRY(rows, node.transpose(updates, order));
  CLEAVE_TRY(hits, hitsOf(node, at, data.shape[axis]));
  Shape shape = rows.shape;
  shape.insert(shape.end() - 1, 1);
  CLEAVE_TRY(wide, node.reshape(rows, shape));
  CLEAVE_TRY(chosen, node.select(hits, wide, node.splat(updates.type, {}, 0)));
  CLEAVE_TRY(sums, reduce(node, nn::Combiner::Sum, chosen, {rank}, false));
  Operand result = sums;
  if (data.splatValue() != 0.0) {
    CLEAVE_TRY(before, node.transpose(data, order));
    if (reduction == "add") {
      CLEAVE_TRY(total, add(node, before, sums));
      result = total;
    } else {
      CLEAVE_TRY(any, reduce(node, nn::Combiner::Max, hits, {rank}, false));
      CLEAVE_TRY(mixed, node.select(any, sums, before));
      result = mixed;
    }
  }
  return one(node, node.transpose(result, inverse(order)));
}

} // namespace

bool areOfTopK(const Operand &indices, int64_t axis) {
  Value value = indices.value;
  while (value)
    if (auto transpose = value.getDefiningOp<nn::TransposeOp>()) {
      axis = transpose.getPermutation()[axis];
      value = transpose.getInput();
    } else if (value.getDefiningOp<arith::TruncIOp>() ||
               value.getDefiningOp<arith::ExtSIOp>()) {
      value = value.getDefiningOp()->getOperand(0);
    } else {
      auto top = value.getDefiningOp<nn::TopKOp>();
      return top && value == top.getIndices() && axis == indices.rank() - 1;
    }
  return false;
}

Expected<Operand> gatherChosen(Node &node, const Operand &data,
                               const Operand &indices, int64_t axis) {
  int64_t rank = data.rank();
  Shape box = indices.shape, zero(rank, 0), ones(rank, 1);
  box[axis] = data.shape[axis];
  CLEAVE_TRY(cut, node.slice(data, zero, box, ones));
  Shape order = axisLast(rank, axis);
  CLEAVE_TRY(at, node.transpose(indices, order));
  CLEAVE_TRY(rows, node.transpose(cut, order));
  CLEAVE_TRY(hits, hitsOf(node, at, data.shape[axis]));
  Shape shape = rows.shape;
  shape.push_back(1);
  CLEAVE_TRY(wide, node.reshape(rows, shape));
  CLEAVE_TRY(chosen, node.select(hits, wide, node.splat(data.type, {}, 0)));
  CLEAVE_TRY(found, reduce(node, nn::Combiner::Sum, chosen, {rank - 1}, false));
  return node.transpose(found, inverse(order));
}

void addSelectionOps(std::vector<OnnxOp> &table) {
  table.push_back({"ScatterElements", kOldest, kNewest, 1,
                   "arith.select nn.reduce", lowerScatterElements});
  table.push_back({"TopK", kOldest, kNewest, 1, "nn.top_k", lowerTopK});
}

} // namespace cleave::importer
