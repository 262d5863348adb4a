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

/// How a reduction combines two elements (for floats, signed and unsigned
/// integers), and its identity element.
struct Fold {
  double (*onFloats)(double, double);
  int64_t (*onInts)(int64_t, int64_t);
  uint64_t (*onUnsigned)(uint64_t, uint64_t);
  HostTensor (*identity)(Element);
};

HostTensor zeroOf(Element type) { return HostTensor(type, {}); }
HostTensor oneOf(Element type) { return HostTensor::splat(type, {}, 1); }

const Fold kSums = {
    [](double a, double b) { return a + b; },
    [](int64_t a, int64_t b) { return int64_t(uint64_t(a) + uint64_t(b)); },
    [](uint64_t a, uint64_t b) { return a + b; }, zeroOf};
const Fold kProducts = {
    [](double a, double b) { return a * b; },
    [](int64_t a, int64_t b) { return int64_t(uint64_t(a) * uint64_t(b)); },
    [](uint64_t a, uint64_t b) { return a * b; }, oneOf};
// NaN stays.
const Fold kMaxima = {
    [](double a, double b) { return std::isnan(b) || b > a ? b : a; },
    [](int64_t a, int64_t b) { return std::max(a, b); },
    [](uint64_t a, uint64_t b) { return std::max(a, b); }, leastOf};
const Fold kMinima = {
    [](double a, double b) { return std::isnan(b) || b < a ? b : a; },
    [](int64_t a, int64_t b) { return std::min(a, b); },
    [](uint64_t a, uint64_t b) { return std::min(a, b); }, greatestOf};

/// Reduces a known tensor along dimensions, which stay with size 1. Floats are
/// reduced in double and rounded once.
Expected<HostTensor> reduceKnown(const HostTensor &input,
                                 ArrayRef<int64_t> dims, const Fold &fold) {
  if (input.size() > HostTensor::kMaxElements)
    return reason("a constant of shape " + spell(input.shape()) +
                  " is too large to evaluate");
  Shape shape(input.shape());
  for (int64_t dim : dims)
    shape[dim] = 1;
  // Doubles, or the integers of the type.
  Element type = input.holdsFloats() ? Element::F64 : input.type();
  HostTensor identity = fold.identity(type);
  HostTensor result = identity.broadcastTo(shape).compact();
  HostTensor spread = result.broadcastTo(input.shape());
  forEach({&input, &spread}, input.shape(), [&](const int64_t *at) {
    if (input.holdsFloats())
      result.setFloat(
          at[1], fold.onFloats(result.floatAt(at[1]), input.floatAt(at[0])));
    else if (type == Element::U64)
      result.setInt(at[1],
                    fold.onUnsigned(result.intAt(at[1]), input.intAt(at[0])));
    else
      result.setInt(at[1],
                    fold.onInts(result.intAt(at[1]), input.intAt(at[0])));
  });
  return result.cast(input.type());
}

Expected<Operand> dropDims(Node &node, const Operand &kept,
                           ArrayRef<int64_t> dims) {
  Shape shape;
  for (auto [dim, size] : llvm::enumerate(kept.shape))
    if (!llvm::is_contained(dims, int64_t(dim)))
      shape.push_back(size);
  return node.reshape(kept, shape);
}

/// Returns the dimensions that a Reduce operator reduces; all if it lists none.
/// Sets `noop` if the result is the input.
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
  return lowerReduce(node, 13,
                     [&](Operand x, ArrayRef<int64_t> dims, bool keep) {
                       return reduce(node, nn::Combiner::Sum, x, dims, keep);
                     });
}
Error lowerReduceMax(Node &node) {
  return lowerReduce(node, 18,
                     [&](Operand x, ArrayRef<int64_t> dims, bool keep) {
                       return reduce(node, nn::Combiner::Max, x, dims, keep);
                     });
}
Error lowerReduceMin(Node &node) {
  return lowerReduce(node, 18,
                     [&](Operand x, ArrayRef<int64_t> dims, bool keep) {
                       return reduce(node, nn::Combiner::Min, x, dims, keep);
                     });
}
/// Returns whether a reduction of float operands is evaluated during import.
/// The evaluation runs in double, in index order.
bool isKnown(const Operand &x) {
  return x.isHost() && isFloat(x.type) && mayEvaluate(x.type, *x.host) &&
         product(x.shape) <= HostTensor::kMaxElements;
}

/// Evaluates after(sum of before(x), number of elements) along `dims` for known
/// floats. The result is rounded once.
Expected<Operand> sumKnown(Node &node, const Operand &x, ArrayRef<int64_t> dims,
                           bool keep, double (*before)(const double *),
                           double (*after)(const double *)) {
  CLEAVE_TRY(mapped, mapFloats(Element::F64, {&*x.host}, before));
  CLEAVE_TRY(sum, reduceKnown(mapped, dims, kSums));
  double number = 1;
  for (int64_t dim : dims)
    number *= double(x.shape[dim]);
  HostTensor count = HostTensor::splat(Element::F64, {}, number);
  CLEAVE_TRY(result, mapFloats(x.type, {&sum, &count}, after));
  Operand kept(result);
  return keep ? Expected<Operand>(kept) : dropDims(node, kept, dims);
}
double itself(const double *v) { return v[0]; }
double absolute(const double *v) { return std::abs(v[0]); }
double squared(const double *v) { return v[0] * v[0]; }
double overCount(const double *v) { return v[0] / v[1]; }
double rootOf(const double *v) { return std::sqrt(v[0]); }
double logOf(const double *v) { return std::log(v[0]); }

Error lowerReduceMean(Node &node) {
  return lowerReduce(
      node, 18,
      [&](Operand x, ArrayRef<int64_t> dims, bool keep) -> Expected<Operand> {
        if (isKnown(x))
          return sumKnown(node, x, dims, keep, itself, overCount);
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
        CLEAVE_TRY(known, reduceKnown(*x.host, dims, kProducts));
        Operand kept(known);
        return keep ? kept : dropDims(node, kept, dims);
      });
}
Error lowerReduceSumSquare(Node &node) {
  return lowerReduce(
      node, 18,
      [&](Operand x, ArrayRef<int64_t> dims, bool keep) -> Expected<Operand> {
        if (isKnown(x))
          return sumKnown(node, x, dims, keep, squared, itself);
        CLEAVE_TRY(square, multiply(node, x, x));
        return reduce(node, nn::Combiner::Sum, square, dims, keep);
      });
}
/// Applies `function`, which is defined on floats. An integer operand is
/// converted to a float, and the result is truncated to an integer.
Expected<Operand> inFloats(Node &node, const Operand &x,
                           Expected<Operand> (*function)(Node &,
                                                         const Operand &),
                           double (*known)(const double *)) {
  if (!isInteger(x.type))
    return function(node, x);
  if (x.isHost()) {
    CLEAVE_TRY(result, mapFloats(x.type, {&*x.host}, known));
    return Operand(result);
  }
  CLEAVE_TRY(wide, node.cast(x, Element::F64));
  CLEAVE_TRY(value, function(node, wide));
  return node.cast(value, x.type);
}
/// Returns the 2-norm, the root of the sum of `squares`. If all elements are
/// zero, its derivative is 0, as in PyTorch (torch.linalg.vector_norm), and not
/// the infinity that the root's derivative would give.
Expected<Operand> normOf(Node &node, const Operand &squares) {
  CLEAVE_TRY(sum, node.value(squares));
  OpBuilder &b = node.builder;
  auto type = cast<RankedTensorType>(sum.getType());
  Value zero = nn::createSplat(b, node.loc, type, 0);
  Value isZero =
      arith::CmpFOp::create(b, node.loc, arith::CmpFPredicate::OEQ, sum, zero);
  Value one = nn::createSplat(b, node.loc, type, 1);
  Value positive = arith::SelectOp::create(b, node.loc, isZero, one, sum);
  Value root = math::SqrtOp::create(b, node.loc, positive);
  return Operand(
      arith::SelectOp::create(b, node.loc, isZero, zero, root).getResult());
}

Error lowerReduceL2(Node &node) {
  return lowerReduce(
      node, 18,
      [&](Operand x, ArrayRef<int64_t> dims, bool keep) -> Expected<Operand> {
        if (isKnown(x))
          return sumKnown(node, x, dims, keep, squared, rootOf);
        CLEAVE_TRY(square, multiply(node, x, x));
        CLEAVE_TRY(sum, reduce(node, nn::Combiner::Sum, square, dims, keep));
        return inFloats(node, sum, normOf, rootOf);
      });
}
Error lowerReduceL1(Node &node) {
  return lowerReduce(
      node, 18,
      [&](Operand x, ArrayRef<int64_t> dims, bool keep) -> Expected<Operand> {
        if (isKnown(x))
          return sumKnown(node, x, dims, keep, absolute, itself);
        CLEAVE_TRY(magnitude, abs(node, x));
        return reduce(node, nn::Combiner::Sum, magnitude, dims, keep);
      });
}
Error lowerReduceLogSum(Node &node) {
  return lowerReduce(
      node, 18,
      [&](Operand x, ArrayRef<int64_t> dims, bool keep) -> Expected<Operand> {
        if (isKnown(x))
          return sumKnown(node, x, dims, keep, itself, logOf);
        CLEAVE_TRY(sum, reduce(node, nn::Combiner::Sum, x, dims, keep));
        return inFloats(node, sum, log, logOf);
      });
}

/// Computes max + log(sum(exp(x - max))), in which exp cannot overflow. If the
/// maximum of a row is infinite, the result is NaN, since x - max is inf - inf.
Expected<Operand> logSumExp(Node &node, const Operand &x,
                            ArrayRef<int64_t> dims, bool keep) {
  CLEAVE_TRY(top, reduce(node, nn::Combiner::Max, x, dims, /*keep=*/true));
  CLEAVE_TRY(shifted, subtract(node, x, top));
  CLEAVE_TRY(weights, exp(node, shifted));
  CLEAVE_TRY(sum,
             reduce(node, nn::Combiner::Sum, weights, dims, /*keep=*/true));
  CLEAVE_TRY(logOfSum, log(node, sum));
  CLEAVE_TRY(result, add(node, logOfSum, top));
  return keep ? Expected<Operand>(result) : dropDims(node, result, dims);
}

/// Computes log-sum-exp for rows whose maximum may be infinite: rows of -inf
/// give -inf, with a derivative of 0, and rows with inf give inf.
Expected<Operand> logSumExpOfAny(Node &node, const Operand &x,
                                 ArrayRef<int64_t> dims, bool keep) {
  CLEAVE_TRY(top, reduce(node, nn::Combiner::Max, x, dims, /*keep=*/true));
  auto splat = [&](double value) { return node.splat(x.type, {}, value); };
  constexpr double infinity = std::numeric_limits<double>::infinity();
  CLEAVE_TRY(isLow, equal(node, top, splat(-infinity)));
  CLEAVE_TRY(isHigh, equal(node, top, splat(infinity)));
  CLEAVE_TRY(raised, node.select(isLow, splat(0), top));
  CLEAVE_TRY(offset, node.select(isHigh, splat(0), raised));
  CLEAVE_TRY(shifted, subtract(node, x, offset));
  CLEAVE_TRY(weights, exp(node, shifted));
  CLEAVE_TRY(sum,
             reduce(node, nn::Combiner::Sum, weights, dims, /*keep=*/true));
  // Where all elements are -inf, the logarithm is taken of 1 instead of 0. The
  // derivative of log(0) is infinite and would reach other values although this
  // result is not used.
  CLEAVE_TRY(some, node.select(isLow, splat(1), sum));
  CLEAVE_TRY(logOfSum, log(node, some));
  CLEAVE_TRY(finite, add(node, logOfSum, offset));
  CLEAVE_TRY(result, node.select(isLow, splat(-infinity), finite));
  return keep ? Expected<Operand>(result) : dropDims(node, result, dims);
}
/// Evaluates log-sum-exp during import for known elements of any type, in
/// double.
Expected<Operand> logSumExpKnown(Node &node, const Operand &x,
                                 ArrayRef<int64_t> dims, bool keep) {
  HostTensor wide = x.host->cast(Element::F64);
  CLEAVE_TRY(top, reduceKnown(wide, dims, kMaxima));
  CLEAVE_TRY(weights,
             mapFloats(Element::F64, {&wide, &top}, [](const double *v) {
               return std::isinf(v[1]) ? 0 : std::exp(v[0] - v[1]);
             }));
  CLEAVE_TRY(sum, reduceKnown(weights, dims, kSums));
  CLEAVE_TRY(result, mapFloats(x.type, {&sum, &top}, [](const double *v) {
               return std::isinf(v[1]) ? v[1] : std::log(v[0]) + v[1];
             }));
  Operand kept(result);
  return keep ? Expected<Operand>(kept) : dropDims(node, kept, dims);
}
Expected<Operand> logSumExpOfFloats(Node &node, const Operand &x,
                                    ArrayRef<int64_t> dims, bool keep) {
  if (isKnown(x) || (x.isHost() && isInteger(x.type)))
    return logSumExpKnown(node, x, dims, keep);
  if (!isInteger(x.type))
    return logSumExpOfAny(node, x, dims, keep);
  CLEAVE_TRY(wide, node.cast(x, Element::F64));
  CLEAVE_TRY(result, logSumExpOfAny(node, wide, dims, keep));
  return node.cast(result, x.type);
}
Error lowerReduceLogSumExp(Node &node) {
  return lowerReduce(node, 18,
                     [&](Operand x, ArrayRef<int64_t> dims, bool keep) {
                       return logSumExpOfFloats(node, x, dims, keep);
                     });
}

/// Lowers Softmax or LogSoftmax. Before opset 13, the operator flattens its
/// input to a matrix at the axis. A scalar is treated as a matrix with one
/// element.
Expected<Operand> softmaxLike(Node &node, bool log) {
  bool isScalar = node.input(0).rank() == 0;
  CLEAVE_TRY(input, isScalar ? node.reshape(node.input(0), {1})
                             : Expected<Operand>(node.input(0)));
  bool flat = node.opset() < 13;
  CLEAVE_TRY(axis,
             Node::axisOf(node.intAttr("axis", flat && !isScalar ? 1 : -1),
                          input.rank()));
  auto apply = [&](const Operand &x, int64_t along) -> Expected<Operand> {
    if (!log)
      return softmax(node, x, along);
    CLEAVE_TRY(total, logSumExp(node, x, {along}, /*keep=*/true));
    return subtract(node, x, total);
  };
  if (!flat || axis == input.rank() - 1) {
    CLEAVE_TRY(result, apply(input, axis));
    return isScalar ? node.reshape(result, {}) : Expected<Operand>(result);
  }
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
  if (operand.isHost() && product(operand.shape) > HostTensor::kMaxStored)
    return reason("a constant of shape " + spell(operand.shape) +
                  " is too large to reduce");
  if (operand.isHost() && mayEvaluate(operand.type, *operand.host) &&
      product(operand.shape) <= HostTensor::kMaxElements) {
    const Fold &fold = combiner == nn::Combiner::Sum   ? kSums
                       : combiner == nn::Combiner::Max ? kMaxima
                                                       : kMinima;
    CLEAVE_TRY(known, reduceKnown(*operand.host, dims, fold));
    kept = Operand(known);
    return keep ? Expected<Operand>(kept) : dropDims(node, kept, dims);
  }
  CLEAVE_TRY(value, node.value(operand));
  Operand reduced(
      nn::ReduceOp::create(node.builder, node.loc, combiner, value, dims));
  return keep ? node.reshape(reduced, shape) : Expected<Operand>(reduced);
}

Expected<Operand> softmax(Node &node, const Operand &operand, int64_t axis) {
  if (product(operand.shape) == 0)
    return operand;
  Shape swap;
  for (int64_t dim = 0; dim < operand.rank(); ++dim)
    swap.push_back(dim);
  if (swap.empty())
    return node.splat(operand.type, {}, 1);
  std::swap(swap[axis], swap.back());
  bool last = axis == operand.rank() - 1;
  CLEAVE_TRY(rows,
             last ? Expected<Operand>(operand) : node.transpose(operand, swap));
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
