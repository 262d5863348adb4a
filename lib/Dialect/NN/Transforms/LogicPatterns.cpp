// Patterns for arithmetic on values that take one of two numbers. Exporters
// spell masks as (1 - float(mask)) * -1e9 and the like. These patterns turn
// them into a select of a boolean and two numbers, which the mask analysis
// understands.

#include "Dataflow.h"

using namespace mlir;

namespace cleave::nn {

namespace {

/// float(condition) -> select(condition, 1, 0).
struct BoolToFloat : OpRewritePattern<arith::UIToFPOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::UIToFPOp op,
                                PatternRewriter &rewriter) const override {
    auto type = dyn_cast<RankedTensorType>(op.getType());
    if (!type || !getElementTypeOrSelf(op.getIn().getType()).isInteger(1))
      return rewriter.notifyMatchFailure(op, "operand is no boolean tensor");
    // The conversion from boolean to number is left unchanged if there is no
    // arithmetic on the number, for example if labels are only counted.
    bool followed = llvm::any_of(op->getUsers(), [&](Operation *user) {
      return isElementwise(user) &&
             llvm::all_of(user->getOperands(), [&](Value operand) {
               return operand == op.getResult() || splatOf(operand);
             });
    });
    if (!followed)
      return rewriter.notifyMatchFailure(op, "no arithmetic with numbers");
    rewriter.replaceOpWithNewOp<arith::SelectOp>(
        op, op.getIn(), createSplat(rewriter, op.getLoc(), type, 1),
        createSplat(rewriter, op.getLoc(), type, 0));
    return success();
  }
};

/// op(select(condition, a, b), number) -> select(condition, op(a, number),
/// op(b, number)), where a and b are numbers.
struct PushIntoSelect : RewritePattern {
  PushIntoSelect(MLIRContext *context)
      : RewritePattern(MatchAnyOpTypeTag(), 1, context) {}
  LogicalResult matchAndRewrite(Operation *op,
                                PatternRewriter &rewriter) const override {
    if (!isElementwise(op) || isa<arith::SelectOp>(op))
      return rewriter.notifyMatchFailure(op, "not elementwise");
    arith::SelectOp select;
    for (Value operand : op->getOperands()) {
      if (splatOf(operand))
        continue;
      auto inner = operand.getDefiningOp<arith::SelectOp>();
      if (!inner || (select && select != inner) ||
          !splatOf(inner.getTrueValue()) || !splatOf(inner.getFalseValue()))
        return rewriter.notifyMatchFailure(op, "operands are no numbers");
      select = inner;
    }
    if (!select)
      return rewriter.notifyMatchFailure(op, "no operand is one of two");
    ArrayRef<int64_t> shape = shapeOf(op->getResult(0));
    // The result is computed here, since MLIR's arith dialect does not fold
    // comparisons of float tensors.
    auto compute = [](Operation *op, ValueRange operands,
                      ArrayRef<int64_t> shape, PatternRewriter &rewriter) {
      auto compare = dyn_cast<arith::CmpFOp>(op);
      if (!compare)
        return cloneElementwise(rewriter, op, operands, shape);
      bool truth = arith::applyCmpPredicate(compare.getPredicate(),
                                            APFloat(*splatOf(operands[0])),
                                            APFloat(*splatOf(operands[1])));
      return createSplat(rewriter, op->getLoc(), typeOf(op->getResult(0)),
                         truth);
    };
    SmallVector<Value, 2> arms;
    for (Value arm : {select.getTrueValue(), select.getFalseValue()}) {
      SmallVector<Value> operands(op->getOperands());
      for (Value &operand : operands)
        if (operand == select.getResult())
          operand = arm;
      arms.push_back(compute(op, operands, shape, rewriter));
    }
    rewriter.replaceOpWithNewOp<arith::SelectOp>(op, select.getCondition(),
                                                 arms[0], arms[1]);
    return success();
  }
};

/// select(condition, true, false) -> condition.
struct SelectOfTruth : OpRewritePattern<arith::SelectOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::SelectOp op,
                                PatternRewriter &rewriter) const override {
    if (!getElementTypeOrSelf(op.getType()).isInteger(1) ||
        op.getCondition().getType() != op.getType())
      return rewriter.notifyMatchFailure(op, "no boolean tensor");
    if (isSplat(op.getTrueValue(), 1) && isSplat(op.getFalseValue(), 0)) {
      rewriter.replaceOp(op, op.getCondition());
      return success();
    }
    if (isSplat(op.getTrueValue(), 0) && isSplat(op.getFalseValue(), 1)) {
      rewriter.replaceOpWithNewOp<arith::XOrIOp>(op, op.getCondition(),
                                                 op.getFalseValue());
      return success();
    }
    return rewriter.notifyMatchFailure(op, "arms are not true and false");
  }
};

/// select(not condition, a, b) -> select(condition, b, a).
struct SelectOfNot : OpRewritePattern<arith::SelectOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::SelectOp op,
                                PatternRewriter &rewriter) const override {
    auto negated = op.getCondition().getDefiningOp<arith::XOrIOp>();
    if (!negated || !isSplat(negated.getRhs(), 1))
      return rewriter.notifyMatchFailure(op, "condition is not negated");
    rewriter.replaceOpWithNewOp<arith::SelectOp>(
        op, negated.getLhs(), op.getFalseValue(), op.getTrueValue());
    return success();
  }
};

} // namespace

void populateLogicPatterns(RewritePatternSet &patterns) {
  patterns.add<BoolToFloat, PushIntoSelect, SelectOfTruth, SelectOfNot>(
      patterns.getContext());
}

} // namespace cleave::nn
