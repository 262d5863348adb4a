// Recognizes attention scores by the arithmetic between two contractions.

#include "AttentionScores.h"

using namespace mlir;

namespace cleave::nn {

namespace {

/// A mask value at or below this number hides a key: compared with usual
/// scores, its exponential is 0.
constexpr double kHidden = -1.0e4;

bool hides(Value value) {
  std::optional<double> splat = splatOf(value);
  return splat && *splat <= kHidden;
}

bool leadsToEinsum(Value value, unsigned depth) {
  Operation *op = value.getDefiningOp();
  if (!op || depth == 0)
    return false;
  if (isa<EinsumOp>(op))
    return true;
  if (isa<arith::MulFOp, arith::DivFOp, arith::AddFOp, arith::SelectOp,
          math::TanhOp>(op))
    return llvm::any_of(op->getOperands(), [&](Value operand) {
      return leadsToEinsum(operand, depth - 1);
    });
  return false;
}

/// Adds a term of the scores to `scores`: as a bias or, if its elements are 0
/// or a very negative number, as a mask.
void addTerm(Value value, ArrayRef<int64_t> dims, double factor,
             Scores &scores) {
  if (splatOf(value) == 0.0)
    return;
  if (auto broadcast = value.getDefiningOp<BroadcastOp>()) {
    Dims inner;
    for (int64_t dim : broadcast.getDims())
      inner.push_back(dims[dim]);
    return addTerm(broadcast.getInput(), inner, factor, scores);
  }
  if (auto add = value.getDefiningOp<arith::AddFOp>()) {
    addTerm(add.getLhs(), dims, factor, scores);
    return addTerm(add.getRhs(), dims, factor, scores);
  }
  if (auto select = value.getDefiningOp<arith::SelectOp>();
      select && factor > 0) {
    Narrow condition{select.getCondition(), Dims(dims)};
    if (isSplat(select.getTrueValue(), 0) && hides(select.getFalseValue())) {
      scores.masks.push_back({condition, false});
      return;
    }
    if (isSplat(select.getFalseValue(), 0) && hides(select.getTrueValue())) {
      scores.masks.push_back({condition, true});
      return;
    }
  }
  scores.biases.push_back({{value, Dims(dims)}, factor});
}

} // namespace

std::optional<Scores> analyzeScores(Value value) {
  Scores scores;
  Dims all = allDims(rankOf(value));
  for (unsigned depth = 14; depth; --depth) {
    Operation *op = value.getDefiningOp();
    if (!op)
      return std::nullopt;
    if (auto einsum = dyn_cast<EinsumOp>(op)) {
      scores.product = einsum;
      return scores;
    }
    if (auto mul = dyn_cast<arith::MulFOp>(op)) {
      std::optional<double> right = splatOf(mul.getRhs());
      std::optional<double> left = splatOf(mul.getLhs());
      if (!left && !right)
        return std::nullopt;
      scores.scale *= right ? *right : *left;
      value = right ? mul.getLhs() : mul.getRhs();
      continue;
    }
    if (auto div = dyn_cast<arith::DivFOp>(op)) {
      std::optional<double> right = splatOf(div.getRhs());
      if (!right || *right == 0)
        return std::nullopt;
      scores.scale /= *right;
      value = div.getLhs();
      continue;
    }
    // A mask is not recognized inside the tanh of a softcap, where it could not
    // hide scores, because tanh maps very negative numbers to -1.
    if (scores.softcap != 0)
      return std::nullopt;
    if (auto tanh = dyn_cast<math::TanhOp>(op)) {
      if (scores.scale == 0)
        return std::nullopt;
      scores.softcap = scores.scale;
      scores.scale = 1;
      value = tanh.getOperand();
    } else if (auto add = dyn_cast<arith::AddFOp>(op)) {
      bool left = leadsToEinsum(add.getLhs(), depth);
      if (!left && !leadsToEinsum(add.getRhs(), depth))
        return std::nullopt;
      addTerm(left ? add.getRhs() : add.getLhs(), all, scores.scale, scores);
      value = left ? add.getLhs() : add.getRhs();
    } else if (auto select = dyn_cast<arith::SelectOp>(op)) {
      bool keepsTrue = hides(select.getFalseValue());
      if (!keepsTrue && !hides(select.getTrueValue()))
        return std::nullopt;
      scores.masks.push_back({{select.getCondition(), all}, !keepsTrue});
      value = keepsTrue ? select.getTrueValue() : select.getFalseValue();
    } else {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

} // namespace cleave::nn
