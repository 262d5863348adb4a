// Folds transposes and broadcasts of an einsum's operands, and transposes of
// its result, into the letters of its equation.

#include "Dataflow.h"

#include <map>

using namespace mlir;

namespace cleave::nn {

namespace {

std::string spell(const EinsumOp::Labels &labels) {
  return labels.lhs + "," + labels.rhs + "->" + labels.result;
}

/// One operand of an einsum: its value, its labels, and the labels of the other
/// operand (`other`).
struct Side {
  Value value;
  std::string labels, other;
};

Side sideOf(EinsumOp op, const EinsumOp::Labels &labels, bool left) {
  return left ? Side{op.getLhs(), labels.lhs, labels.rhs}
              : Side{op.getRhs(), labels.rhs, labels.lhs};
}

void replaceSide(EinsumOp op, PatternRewriter &rewriter, bool left, Value value,
                 StringRef side) {
  EinsumOp::Labels labels = op.getLabels();
  (left ? labels.lhs : labels.rhs) = side.str();
  rewriter.replaceOpWithNewOp<EinsumOp>(
      op, rewriter.getStringAttr(spell(labels)), left ? value : op.getLhs(),
      left ? op.getRhs() : value);
}

struct AbsorbTranspose : OpRewritePattern<EinsumOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(EinsumOp op,
                                PatternRewriter &rewriter) const override {
    EinsumOp::Labels labels = op.getLabels();
    for (bool left : {true, false}) {
      Side side = sideOf(op, labels, left);
      auto transpose = side.value.getDefiningOp<TransposeOp>();
      if (!transpose)
        continue;
      std::string letters(side.labels.size(), ' ');
      for (auto [index, dim] : llvm::enumerate(transpose.getPermutation()))
        letters[dim] = side.labels[index];
      replaceSide(op, rewriter, left, transpose.getInput(), letters);
      return success();
    }
    return rewriter.notifyMatchFailure(op, "no operand is transposed");
  }
};

/// If an einsum operand is broadcast along a dimension that is not contracted
/// and that the other operand has, too, removes this dimension from the
/// operand, and its letter from the equation.
struct AbsorbBroadcast : OpRewritePattern<EinsumOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(EinsumOp op,
                                PatternRewriter &rewriter) const override {
    EinsumOp::Labels labels = op.getLabels();
    for (bool left : {true, false}) {
      Side side = sideOf(op, labels, left);
      auto broadcast = side.value.getDefiningOp<BroadcastOp>();
      if (!broadcast)
        continue;
      Dims kept, shape, position(side.labels.size(), -1);
      std::string letters;
      for (auto [dim, letter] : llvm::enumerate(side.labels)) {
        bool repeats = !llvm::is_contained(broadcast.getDims(), int64_t(dim));
        if (repeats && StringRef(side.other).contains(letter) &&
            StringRef(labels.result).contains(letter))
          continue;
        position[dim] = letters.size();
        letters.push_back(letter);
        shape.push_back(shapeOf(side.value)[dim]);
      }
      if (letters.size() == side.labels.size())
        continue;
      Dims dims;
      for (int64_t dim : broadcast.getDims())
        dims.push_back(position[dim]);
      Value value =
          broadcastTo(rewriter, op.getLoc(), broadcast.getInput(), shape, dims);
      replaceSide(op, rewriter, left, value, letters);
      return success();
    }
    return rewriter.notifyMatchFailure(op, "no operand repeats");
  }
};

/// Replaces an einsum that contracts nothing by a product of broadcast
/// operands.
struct ProductWithoutContraction : OpRewritePattern<EinsumOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(EinsumOp op,
                                PatternRewriter &rewriter) const override {
    EinsumOp::Labels labels = op.getLabels();
    for (char letter : labels.lhs)
      if (!StringRef(labels.result).contains(letter))
        return rewriter.notifyMatchFailure(op, "contracts");
    SmallVector<Value, 2> factors;
    for (bool left : {true, false}) {
      Side side = sideOf(op, labels, left);
      Dims dims, order = allDims(side.labels.size());
      for (char letter : side.labels)
        dims.push_back(labels.result.find(letter));
      llvm::sort(order,
                 [&](int64_t a, int64_t b) { return dims[a] < dims[b]; });
      llvm::sort(dims);
      Value sorted = transposeTo(rewriter, op.getLoc(), side.value, order);
      factors.push_back(broadcastTo(rewriter, op.getLoc(), sorted,
                                    shapeOf(op.getResult()), dims));
    }
    rewriter.replaceOpWithNewOp<arith::MulFOp>(op, factors[0], factors[1]);
    return success();
  }
};

struct AbsorbResultTranspose : OpRewritePattern<TransposeOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(TransposeOp op,
                                PatternRewriter &rewriter) const override {
    auto einsum = op.getInput().getDefiningOp<EinsumOp>();
    if (!einsum || !einsum->hasOneUse())
      return rewriter.notifyMatchFailure(op, "operand is no einsum of its own");
    EinsumOp::Labels labels = einsum.getLabels();
    std::string result;
    for (int64_t dim : op.getPermutation())
      result.push_back(labels.result[dim]);
    labels.result = result;
    rewriter.setInsertionPoint(einsum);
    Value changed = EinsumOp::create(rewriter, einsum.getLoc(),
                                     rewriter.getStringAttr(spell(labels)),
                                     einsum.getLhs(), einsum.getRhs());
    rewriter.replaceOp(op, changed);
    return success();
  }
};

} // namespace

void populateEinsumPatterns(RewritePatternSet &patterns) {
  patterns.add<AbsorbTranspose, AbsorbBroadcast, ProductWithoutContraction>(
      patterns.getContext());
}

void renameLetters(Operation *root) {
  root->walk([](EinsumOp op) {
    EinsumOp::Labels labels = op.getLabels();
    std::map<char, char> names;
    auto rename = [&](std::string &letters) {
      for (char &letter : letters) {
        size_t count = names.size();
        char fresh = count < 26 ? 'a' + count : 'A' + (count - 26);
        letter = names.try_emplace(letter, fresh).first->second;
      }
    };
    rename(labels.lhs);
    rename(labels.rhs);
    rename(labels.result);
    op.setEquation(spell(labels));
  });
}

void populateEinsumResultPatterns(RewritePatternSet &patterns) {
  patterns.add<AbsorbResultTranspose>(patterns.getContext());
}

} // namespace cleave::nn
