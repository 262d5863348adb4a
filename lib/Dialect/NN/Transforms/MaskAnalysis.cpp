// Splits masks of attention scores into parts that nn.attention can express:
// bands (bounds on key index - query index), segments (queries and keys with
// equal ids), and masks of keys. The parts are recognized by the comparisons
// that compute them.

#include "MaskAnalysis.h"

#include <cmath>

using namespace mlir;

namespace cleave::nn {

namespace {

/// An integer that depends on the position in the scores: query * (index of the
/// query) + key * (index of the key) + offset.
struct Affine {
  int64_t query = 0, key = 0, offset = 0;
};

/// The bound on integers in index arithmetic. It keeps sums within 64 bits;
/// larger numbers cannot be indices.
constexpr double kLargest = int64_t(1) << 60;

/// `op` is a data movement, and `dims` says for each dimension of its result
/// which dimension of the scores it is. Returns the same for its operand;
/// nullopt if `op` is no data movement.
std::optional<Dims> through(Operation *op, ArrayRef<int64_t> dims) {
  Dims result;
  if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
    for (int64_t dim : broadcast.getDims())
      result.push_back(dims[dim]);
    return result;
  }
  if (auto transpose = dyn_cast<TransposeOp>(op)) {
    for (int64_t dim : inverse(transpose.getPermutation()))
      result.push_back(dims[dim]);
    return result;
  }
  return std::nullopt;
}

/// Follows a value back through broadcasts and other data movements. Returns
/// the value that is moved by these operations, and the dimensions of the
/// scores along which it varies.
Narrow narrowed(Value value, ArrayRef<int64_t> dims) {
  Narrow result{value, Dims(dims)};
  while (Operation *op = result.source.getDefiningOp()) {
    std::optional<Dims> inner = through(op, result.dims);
    if (!inner)
      break;
    result = {op->getOperand(0), *inner};
  }
  return result;
}

std::optional<Affine> affineOf(Value value, ArrayRef<int64_t> dims,
                               const ScoreDims &scores) {
  if (std::optional<double> splat = splatOf(value)) {
    if (std::abs(*splat) > kLargest)
      return std::nullopt;
    return Affine{0, 0, int64_t(*splat)};
  }
  Operation *op = value.getDefiningOp();
  if (!op)
    return std::nullopt;
  if (std::optional<Dims> inner = through(op, dims))
    return affineOf(op->getOperand(0), *inner, scores);
  if (auto iota = dyn_cast<IotaOp>(op)) {
    int64_t dim = dims[iota.getDim()];
    if (dim == scores.query)
      return Affine{1, 0, 0};
    if (dim == scores.key)
      return Affine{0, 1, 0};
    return std::nullopt;
  }
  if (isa<arith::AddIOp, arith::SubIOp>(op)) {
    std::optional<Affine> a = affineOf(op->getOperand(0), dims, scores);
    std::optional<Affine> b = affineOf(op->getOperand(1), dims, scores);
    if (!a || !b)
      return std::nullopt;
    int64_t sign = isa<arith::SubIOp>(op) ? -1 : 1;
    return Affine{a->query + sign * b->query, a->key + sign * b->key,
                  a->offset + sign * b->offset};
  }
  return std::nullopt;
}

/// If `value` is an index difference of a key j and a query i, adds the bounds
/// on j - i that follow from `low <= value <= high` to `parts`; otherwise
/// returns false.
bool addBand(const Affine &value, std::optional<int64_t> low,
             std::optional<int64_t> high, MaskPart part, MaskParts &parts) {
  if (value.query * value.key != -1)
    return false;
  if (value.key == -1) // the bounds of i - j, negated, are those of j - i
    std::swap(low, high);
  auto shifted = [&](int64_t bound) {
    return (bound - value.offset) * value.key;
  };
  if (high)
    parts.highest =
        std::min(parts.highest.value_or(shifted(*high)), shifted(*high));
  if (low) {
    parts.lowest =
        std::max(parts.lowest.value_or(shifted(*low)), shifted(*low));
    parts.lowerBounds.push_back(std::move(part));
  }
  return true;
}

/// Adds to `parts` a comparison of query and key indices, or of the absolute
/// value of their difference; returns false for other operations.
bool addComparison(arith::CmpIOp op, bool negated, ArrayRef<int64_t> dims,
                   const ScoreDims &scores, MaskParts &parts) {
  arith::CmpIPredicate predicate = op.getPredicate();
  if (negated)
    predicate = arith::invertPredicate(predicate);
  // a >= b is b <= a, and a > b is b < a.
  Value left = op.getLhs(), right = op.getRhs();
  if (predicate == arith::CmpIPredicate::sge ||
      predicate == arith::CmpIPredicate::sgt) {
    std::swap(left, right);
    predicate = predicate == arith::CmpIPredicate::sge
                    ? arith::CmpIPredicate::sle
                    : arith::CmpIPredicate::slt;
  }
  if (predicate != arith::CmpIPredicate::sle &&
      predicate != arith::CmpIPredicate::slt)
    return false;
  int64_t slack = predicate == arith::CmpIPredicate::slt ? -1 : 0;
  MaskPart part{{op.getResult(), Dims(dims)}, negated};
  std::optional<Affine> bound = affineOf(right, dims, scores);
  if (!bound)
    return false;
  Narrow inner = narrowed(left, dims);
  if (auto absolute = inner.source.getDefiningOp<math::AbsIOp>()) {
    std::optional<Affine> value =
        affineOf(absolute.getOperand(), inner.dims, scores);
    int64_t reach = bound->offset + slack;
    return value && bound->query == 0 && bound->key == 0 &&
           addBand(*value, -reach, reach, part, parts);
  }
  std::optional<Affine> value = affineOf(left, dims, scores);
  if (!value)
    return false;
  Affine difference = {value->query - bound->query, value->key - bound->key,
                       value->offset - bound->offset};
  return addBand(difference, std::nullopt, slack, part, parts);
}

/// If `op` compares ids of queries with ids of keys, adds the segments that
/// these ids define (queries read only keys with the same id) to `parts`.
/// Returns false for other comparisons, or if there are segments already.
bool addSegments(arith::CmpIOp op, bool negated, ArrayRef<int64_t> dims,
                 const ScoreDims &scores, MaskParts &parts) {
  if (parts.segments ||
      op.getPredicate() !=
          (negated ? arith::CmpIPredicate::ne : arith::CmpIPredicate::eq))
    return false;
  Narrow left = narrowed(op.getLhs(), dims);
  Narrow right = narrowed(op.getRhs(), dims);
  Type element = typeOf(left.source).getElementType();
  if (!element.isInteger(32) && !element.isInteger(64))
    return false;
  auto runsAlong = [&](const Narrow &ids, int64_t dim) {
    return llvm::is_contained(ids.dims, dim) &&
           llvm::all_of(ids.dims, [&](int64_t other) {
             return other == dim || other == scores.batch;
           });
  };
  if (runsAlong(right, scores.query))
    std::swap(left, right);
  if (!runsAlong(left, scores.query) || !runsAlong(right, scores.key))
    return false;
  parts.segments = {left, right};
  return true;
}

} // namespace

void splitMask(Value mask, bool negated, ArrayRef<int64_t> dims,
               const ScoreDims &scores, MaskParts &parts) {
  if (isSplat(mask, negated ? 0 : 1))
    return;
  if (Operation *op = mask.getDefiningOp()) {
    if (std::optional<Dims> inner = through(op, dims))
      return splitMask(op->getOperand(0), negated, *inner, scores, parts);
    if (isa<arith::XOrIOp>(op) && isSplat(op->getOperand(1), 1))
      return splitMask(op->getOperand(0), !negated, dims, scores, parts);
    // not (a or b) is (not a) and (not b).
    if (negated ? isa<arith::OrIOp>(op) : isa<arith::AndIOp>(op)) {
      splitMask(op->getOperand(0), negated, dims, scores, parts);
      return splitMask(op->getOperand(1), negated, dims, scores, parts);
    }
    if (auto compare = dyn_cast<arith::CmpIOp>(op))
      if (addComparison(compare, negated, dims, scores, parts) ||
          addSegments(compare, negated, dims, scores, parts))
        return;
  }
  bool onlyKeys = llvm::is_contained(dims, scores.key) &&
                  llvm::all_of(dims, [&](int64_t dim) {
                    return dim == scores.key || dim == scores.batch;
                  });
  (onlyKeys ? parts.keyMasks : parts.rest)
      .push_back({{mask, Dims(dims)}, negated});
}

BandRule sayBand(MaskParts &parts, int64_t s, int64_t t) {
  BandRule rule;
  bool fromAbove = parts.highest && *parts.highest < t - 1;
  bool fromBelow = parts.lowest && *parts.lowest > 1 - s;
  // nn.attention supports bands (ranges of keys) that end at the query or
  // contain it. Other bands, such as empty ones or those with only a lower
  // bound, remain masks.
  bool isWindow = fromAbove && fromBelow && *parts.lowest <= *parts.highest;
  if (fromBelow && !isWindow)
    llvm::append_range(parts.rest, parts.lowerBounds);
  if (!fromAbove)
    return rule;
  if (isWindow && *parts.lowest == -*parts.highest && *parts.highest > 0) {
    rule.window = *parts.highest + 1;
    return rule;
  }
  rule.causal = true;
  rule.shift = *parts.highest;
  if (isWindow)
    rule.window = *parts.highest - *parts.lowest + 1;
  return rule;
}

} // namespace cleave::nn
