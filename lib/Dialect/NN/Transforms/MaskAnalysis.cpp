// Causal masks and key masks, told from comparisons of index grids.

#include "MaskAnalysis.h"

using namespace mlir;

namespace cleave::nn {

namespace {

/// index along `dim` plus `offset`; dim is -1 for a plain number.
struct Affine {
  int64_t dim = -1;
  int64_t offset = 0;
};

/// Dimensions of the operand of a movement, given those of its result.
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

std::optional<Affine> affineOf(Value value, ArrayRef<int64_t> dims) {
  if (std::optional<double> splat = splatOf(value))
    return Affine{-1, int64_t(*splat)};
  Operation *op = value.getDefiningOp();
  if (!op)
    return std::nullopt;
  if (std::optional<Dims> inner = through(op, dims))
    return affineOf(op->getOperand(0), *inner);
  if (auto iota = dyn_cast<IotaOp>(op))
    return Affine{dims[iota.getDim()], 0};
  if (isa<arith::AddIOp, arith::SubIOp>(op)) {
    std::optional<Affine> a = affineOf(op->getOperand(0), dims);
    std::optional<Affine> b = affineOf(op->getOperand(1), dims);
    bool subtract = isa<arith::SubIOp>(op);
    if (!a || !b || (b->dim != -1 && (a->dim != -1 || subtract)))
      return std::nullopt;
    return Affine{a->dim != -1 ? a->dim : b->dim,
                  subtract ? a->offset - b->offset : a->offset + b->offset};
  }
  return std::nullopt;
}

/// The offset where the comparison says key <= query + offset.
std::optional<int64_t> causalOffset(arith::CmpIOp op, bool negated,
                                    ArrayRef<int64_t> dims,
                                    const ScoreDims &scores) {
  std::optional<Affine> left = affineOf(op.getLhs(), dims);
  std::optional<Affine> right = affineOf(op.getRhs(), dims);
  if (!left || !right)
    return std::nullopt;
  arith::CmpIPredicate predicate = op.getPredicate();
  if (negated)
    predicate = arith::invertPredicate(predicate);
  // a >= b is b <= a, and a > b is b < a.
  if (predicate == arith::CmpIPredicate::sge ||
      predicate == arith::CmpIPredicate::sgt) {
    std::swap(left, right);
    predicate = predicate == arith::CmpIPredicate::sge
                    ? arith::CmpIPredicate::sle
                    : arith::CmpIPredicate::slt;
  }
  if (left->dim != scores.key || right->dim != scores.query)
    return std::nullopt;
  int64_t offset = right->offset - left->offset;
  if (predicate == arith::CmpIPredicate::sle)
    return offset;
  if (predicate == arith::CmpIPredicate::slt)
    return offset - 1;
  return std::nullopt;
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
      if (std::optional<int64_t> offset =
              causalOffset(compare, negated, dims, scores)) {
        parts.causalOffset =
            std::min(parts.causalOffset.value_or(*offset), *offset);
        return;
      }
  }
  bool onlyKeys = llvm::is_contained(dims, scores.key) &&
                  llvm::all_of(dims, [&](int64_t dim) {
                    return dim == scores.key || dim == scores.batch;
                  });
  (onlyKeys ? parts.keyMasks : parts.rest)
      .push_back({{mask, Dims(dims)}, negated});
}

} // namespace cleave::nn
