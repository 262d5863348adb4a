// Reductions and softmax.

#include "Families.h"

#include <cmath>

using namespace mlir;
using llvm::ArrayRef;
using llvm::Error;
using llvm::Expected;
using llvm::Twine;

namespace cleave::importer {

namespace {

/// Folds a known tensor along dimensions, which stay with size 1.
HostTensor reduceKnown(const HostTensor &input, ArrayRef<int64_t> dims,
                       double identity,
                       llvm::function_ref<double(double, double)> combine) {
  Shape shape(input.shape());
  for (int64_t dim : dims)
    shape[dim] = 1;
  HostTensor result = HostTensor::splat(input.type(), shape, identity).compact();
  HostTensor spread = result.broadcastTo(input.shape());
  forEach({&input, &spread}, input.shape(), [&](const int64_t *at) {
    result.setFloat(at[1], combine(spread.floatAt(at[1]), input.floatAt(at[0])));
  });
  return result;
}

Expected<Operand> dropDims(Node &node, const Operand &kept,
                           ArrayRef<int64_t> dims) {
  Shape shape;
  for (auto [dim, size] : llvm::enumerate(kept.shape))
    if (!llvm::is_contained(dims, int64_t(dim)))
      shape.push_back(size);
  return node.reshape(kept, shape);
}

/// The dimensions that a Reduce operator speaks of; none of them is "all".
/// Sets `noop` where the input is the result.
Expected<Shape> reducedDims(Node &node, int64_t axesSince, bool &noop) {
  int64_t rank = node.input(0).rank();
  CLEAVE_TRY(given, node.axes(axesSince, 1));
  noop = false;
  if (given && !given->empty())
    return Node::axesOf(*given, rank);
  noop = node.intAttr("noop_with_empty_axes", 0);
  Shape all;
  for (int64_t dim = 0; dim < rank; ++dim)
    all.push_back(dim);
  return all;
}

template <class Body>
Error lowerReduce(Node &node, int64_t axesSince, Body body) {
  bool noop;
  CLEAVE_TRY(dims, reducedDims(node, axesSince, noop));
  Operand input = node.input(0);
  if (noop)
    dims.clear();
  return one(node, body(input, dims, bool(node.intAttr("keepdims", 1))));
}

Expected<Operand> countOf(Node &node, const Operand &input,
                          ArrayRef<int64_t> dims) {
  int64_t count = 1;
  for (int64_t dim : dims)
    count *= input.shape[dim];
  return node.splat(input.type, {}, double(count));
}

Error lowerReduceSum(Node &node) {
  return lowerReduce(node, 13, [&](Operand x, ArrayRef<int64_t> dims, bool keep) {
    return reduce(node, nn::Combiner::Sum, x, dims, keep);
  });
}
Error lowerReduceMax(Node &node) {
  return lowerReduce(node, 18, [&](Operand x, ArrayRef<int64_t> dims, bool keep) {
    return reduce(node, nn::Combiner::Max, x, dims, keep);
  });
}
Error lowerReduceMin(Node &node) {
  return lowerReduce(node, 18, [&](Operand x, ArrayRef<int64_t> dims, bool keep) {
    return reduce(node, nn::Combiner::Min, x, dims, keep);
  });
}
Error lowerReduceMean(Node &node) {
  return lowerReduce(
      node, 18,
      [&](Operand x, ArrayRef<int64_t> dims, bool keep) -> Expected<Operand> {
        CLEAVE_TRY(sum, reduce(node, nn::Combiner::Sum, x, dims, keep));
        CLEAVE_TRY(count, countOf(node, x, dims));
        return divide(node, sum, count);
      });
}
Error lowerReduceProd(Node &node) {
  return lowerReduce(
      node, 18,
      [&](Operand x, ArrayRef<int64_t> dims, bool keep) -> Expected<Operand> {
        if (!x.isHost())
          return reason("products are supported only where the input is known "
                        "when importing");
        Operand kept(reduceKnown(*x.host, dims, 1,
                                 [](double a, double b) { return a * b; }));
        return keep ? kept : dropDims(node, kept, dims);
      });
}
Error lowerReduceSumSquare(Node &node) {
  return lowerReduce(
      node, 18,
      [&](Operand x, ArrayRef<int64_t> dims, bool keep) -> Expected<Operand> {
        CLEAVE_TRY(square, multiply(node, x, x));
        return reduce(node, nn::Combiner::Sum, square, dims, keep);
      });
}
Expected<Operand> mapValue(Node &node, const Operand &x,
                           Value (*emit)(OpBuilder &, Location, Value)) {
  CLEAVE_TRY(value, node.value(x));
  return Operand(emit(node.builder, node.loc, value));
}
Value emitSqrt(OpBuilder &b, Location loc, Value v) {
  return math::SqrtOp::create(b, loc, v);
}
Value emitLog(OpBuilder &b, Location loc, Value v) {
  return math::LogOp::create(b, loc, v);
}
Value emitExp(OpBuilder &b, Location loc, Value v) {
  return math::ExpOp::create(b, loc, v);
}
Value emitAbs(OpBuilder &b, Location loc, Value v) {
  return math::AbsFOp::create(b, loc, v);
}
Error lowerReduceL2(Node &node) {
  return lowerReduce(
      node, 18,
      [&](Operand x, ArrayRef<int64_t> dims, bool keep) -> Expected<Operand> {
        CLEAVE_TRY(square, multiply(node, x, x));
        CLEAVE_TRY(sum, reduce(node, nn::Combiner::Sum, square, dims, keep));
        return mapValue(node, sum, emitSqrt);
      });
}
Error lowerReduceL1(Node &node) {
  return lowerReduce(
      node, 18,
      [&](Operand x, ArrayRef<int64_t> dims, bool keep) -> Expected<Operand> {
        CLEAVE_TRY(magnitude, mapValue(node, x, emitAbs));
        return reduce(node, nn::Combiner::Sum, magnitude, dims, keep);
      });
}
Error lowerReduceLogSum(Node &node) {
  return lowerReduce(
      node, 18,
      [&](Operand x, ArrayRef<int64_t> dims, bool keep) -> Expected<Operand> {
        CLEAVE_TRY(sum, reduce(node, nn::Combiner::Sum, x, dims, keep));
        return mapValue(node, sum, emitLog);
      });
}

/// max + log(sum(exp(x - max))), which cannot overflow.
Expected<Operand> logSumExp(Node &node, const Operand &x,
                            ArrayRef<int64_t> dims, bool keep) {
  CLEAVE_TRY(top, reduce(node, nn::Combiner::Max, x, dims, /*keep=*/true));
  CLEAVE_TRY(shifted, subtract(node, x, top));
  CLEAVE_TRY(weights, mapValue(node, shifted, emitExp));
  CLEAVE_TRY(sum, reduce(node, nn::Combiner::Sum, weights, dims, /*keep=*/true));
  CLEAVE_TRY(log, mapValue(node, sum, emitLog));
  CLEAVE_TRY(result, add(node, log, top));
  return keep ? Expected<Operand>(result) : dropDims(node, result, dims);
}
Error lowerReduceLogSumExp(Node &node) {
  return lowerReduce(node, 18, [&](Operand x, ArrayRef<int64_t> dims, bool keep) {
    return logSumExp(node, x, dims, keep);
  });
}

/// Before opset 13 the input is seen as a matrix, cut at the axis.
Expected<Operand> softmaxLike(Node &node, bool log) {
  const Operand &input = node.input(0);
  bool flat = node.opset() < 13;
  CLEAVE_TRY(axis, Node::axisOf(node.intAttr("axis", flat ? 1 : -1),
                                std::max<int64_t>(input.rank(), 1)));
  auto apply = [&](const Operand &x, int64_t along) -> Expected<Operand> {
    if (!log)
      return softmax(node, x, along);
    CLEAVE_TRY(total, logSumExp(node, x, {along}, /*keep=*/true));
    return subtract(node, x, total);
  };
  if (!flat || axis == input.rank() - 1)
    return apply(input, axis);
  ArrayRef<int64_t> shape = input.shape;
  CLEAVE_TRY(matrix, node.reshape(input, {product(shape.take_front(axis)),
                                          product(shape.drop_front(axis))}));
  CLEAVE_TRY(result, apply(matrix, 1));
  return node.reshape(result, shape);
}
Error lowerSoftmax(Node &node) { return one(node, softmaxLike(node, false)); }
Error lowerLogSoftmax(Node &node) { return one(node, softmaxLike(node, true)); }

} // namespace

Expected<Operand> reduce(Node &node, nn::Combiner combiner,
                         const Operand &operand, ArrayRef<int64_t> dims,
                         bool keep) {
  if (dims.empty())
    return operand;
  Operand kept;
  Shape shape = operand.shape;
  for (int64_t dim : dims)
    shape[dim] = 1;
  if (operand.isHost() && mayEvaluate(operand.type, *operand.host)) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    double (*combine)(double, double) =
        combiner == nn::Combiner::Sum ? [](double a, double b) { return a + b; }
        : combiner == nn::Combiner::Max
            ? [](double a, double b) { return std::max(a, b); }
            : [](double a, double b) { return std::min(a, b); };
    double identity = combiner == nn::Combiner::Sum   ? 0
                      : combiner == nn::Combiner::Max ? -infinity
                                                      : infinity;
    kept = Operand(reduceKnown(*operand.host, dims, identity, combine));
    return keep ? Expected<Operand>(kept) : dropDims(node, kept, dims);
  }
  CLEAVE_TRY(value, node.value(operand));
  Operand reduced(
      nn::ReduceOp::create(node.builder, node.loc, combiner, value, dims));
  return keep ? node.reshape(reduced, shape) : Expected<Operand>(reduced);
}

Expected<Operand> softmax(Node &node, const Operand &operand, int64_t axis) {
  Shape swap;
  for (int64_t dim = 0; dim < operand.rank(); ++dim)
    swap.push_back(dim);
  if (swap.empty())
    return node.splat(operand.type, {}, 1);
  std::swap(swap[axis], swap.back());
  bool last = axis == operand.rank() - 1;
  CLEAVE_TRY(rows, last ? Expected<Operand>(operand)
                        : node.transpose(operand, swap));
  CLEAVE_TRY(value, node.value(rows));
  Operand result(
      nn::SoftmaxOp::create(node.builder, node.loc, value.getType(), value));
  return last ? Expected<Operand>(result) : node.transpose(result, swap);
}

void addReductionOps(std::vector<OnnxOp> &table) {
  auto op = [&](llvm::StringRef name, int tier, llvm::StringRef becomes,
                LowerFunction lower) {
    table.push_back({name, kOldest, kNewest, tier, becomes, lower});
  };
  op("LogSoftmax", 1, "nn.reduce math.exp math.log", lowerLogSoftmax);
  op("ReduceL1", 2, "nn.reduce", lowerReduceL1);
  op("ReduceL2", 2, "nn.reduce math.sqrt", lowerReduceL2);
  op("ReduceLogSum", 2, "nn.reduce math.log", lowerReduceLogSum);
  op("ReduceLogSumExp", 2, "nn.reduce math.exp math.log", lowerReduceLogSumExp);
  op("ReduceMax", 1, "nn.reduce", lowerReduceMax);
  op("ReduceMean", 1, "nn.reduce arith.divf", lowerReduceMean);
  op("ReduceMin", 2, "nn.reduce", lowerReduceMin);
  op("ReduceProd", 1, "", lowerReduceProd);
  op("ReduceSum", 1, "nn.reduce", lowerReduceSum);
  op("ReduceSumSquare", 2, "nn.reduce", lowerReduceSumSquare);
  op("Softmax", 1, "nn.softmax", lowerSoftmax);
}

} // namespace cleave::importer
