// Recognizes rotary position embeddings, x * cos + rotate(x) * sin. Here rotate
// exchanges the two halves of the last dimension, whose size is d, and negates
// the half that then comes first:
//   rotate(x) = concat(-x[d/2:], x[:d/2])
// The tables cos and sin have two equal halves along the last dimension. They
// depend on the position, and may also depend on the sample.

#include "Dataflow.h"

using namespace mlir;

namespace cleave::nn {

namespace {

/// Returns whether `value` is a slice of x: the first half of dimension `dim`
/// (the second half if `second` is true), and all of the other dimensions. If x
/// itself is a slice, both slices may have been merged into one.
bool isHalf(Value value, Value x, int64_t dim, bool second) {
  auto slice = value.getDefiningOp<SliceOp>();
  auto outer = x.getDefiningOp<SliceOp>();
  if (!slice)
    return false;
  Value base = slice.getInput();
  if (base != x && (!outer || outer.getInput() != base ||
                    llvm::any_of(outer.getStrides(),
                                 [](int64_t step) { return step != 1; })))
    return false;
  Dims start = base == x ? Dims(rankOf(x), 0) : Dims(outer.getOffsets());
  for (int64_t d = 0; d < rankOf(x); ++d) {
    int64_t size = shapeOf(x)[d];
    if (slice.getStrides()[d] != 1 ||
        slice.getSizes()[d] != (d == dim ? size / 2 : size) ||
        slice.getOffsets()[d] - start[d] != (d == dim && second ? size / 2 : 0))
      return false;
  }
  return true;
}

/// Returns the dimension along which `value` is rotate(x); -1 if it is not.
int64_t rotatedDim(Value value, Value x) {
  auto concat = value.getDefiningOp<ConcatOp>();
  if (!concat || concat.getInputs().size() != 2 ||
      value.getType() != x.getType())
    return -1;
  int64_t dim = concat.getDim();
  auto neg = concat.getInputs()[0].getDefiningOp<arith::NegFOp>();
  if (shapeOf(x)[dim] % 2 || !neg ||
      !isHalf(neg.getOperand(), x, dim, /*second=*/true) ||
      !isHalf(concat.getInputs()[1], x, dim, /*second=*/false))
    return -1;
  return dim;
}

/// Returns whether both halves of a table (cos or sin) along its last dimension
/// are known to be equal.
bool hasEqualHalves(Value table) {
  if (splatOf(table))
    return true;
  if (auto concat = table.getDefiningOp<ConcatOp>())
    return concat.getInputs().size() == 2 &&
           concat.getInputs()[0] == concat.getInputs()[1] &&
           int64_t(concat.getDim()) == rankOf(table) - 1;
  if (auto broadcast = table.getDefiningOp<BroadcastOp>())
    return llvm::is_contained(broadcast.getDims(), rankOf(table) - 1) &&
           hasEqualHalves(broadcast.getInput());
  Operation *op = table.getDefiningOp();
  return op && isElementwise(op) &&
         llvm::all_of(op->getOperands(), hasEqualHalves);
}

/// Returns the first half, along the last dimension, of a table whose two
/// halves are equal.
Value halfOf(Value table, OpBuilder &builder) {
  if (auto concat = table.getDefiningOp<ConcatOp>())
    return concat.getInputs()[0];
  Operation *op = table.getDefiningOp();
  if (op && isElementwise(op)) {
    SmallVector<Value> halves;
    for (Value operand : op->getOperands()) {
      Dims shape(shapeOf(operand));
      shape.back() /= 2;
      Value half = reshapedSplat(builder, op->getLoc(), operand, shape);
      halves.push_back(half ? half : halfOf(operand, builder));
    }
    Dims shape(shapeOf(table));
    shape.back() /= 2;
    return cloneElementwise(builder, op, halves, shape);
  }
  if (auto broadcast = table.getDefiningOp<BroadcastOp>()) {
    Value half = halfOf(broadcast.getInput(), builder);
    Dims shape(shapeOf(table));
    shape.back() /= 2;
    return broadcastTo(builder, table.getLoc(), half, shape,
                       broadcast.getDims());
  }
  return {};
}

struct RaiseRotary : OpRewritePattern<arith::AddFOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(arith::AddFOp op,
                                PatternRewriter &rewriter) const override {
    auto left = op.getLhs().getDefiningOp<arith::MulFOp>();
    auto right = op.getRhs().getDefiningOp<arith::MulFOp>();
    if (!left || !right)
      return rewriter.notifyMatchFailure(op, "no sum of products");
    for (auto [straight, turned] :
         {std::pair(left, right), std::pair(right, left)})
      for (auto [x, cos] : {std::pair(straight.getLhs(), straight.getRhs()),
                            std::pair(straight.getRhs(), straight.getLhs())})
        for (auto [rotated, sin] :
             {std::pair(turned.getLhs(), turned.getRhs()),
              std::pair(turned.getRhs(), turned.getLhs())}) {
          int64_t dim = rotatedDim(rotated, x);
          if (dim >= 0 && succeeded(raise(op, x, cos, sin, dim, rewriter)))
            return success();
        }
    return rewriter.notifyMatchFailure(op, "no rotation");
  }

  LogicalResult raise(arith::AddFOp op, Value x, Value cos, Value sin,
                      int64_t dim, PatternRewriter &rewriter) const {
    Location loc = op.getLoc();
    Narrow c = narrow(cos), s = narrow(sin);
    int64_t rank = rankOf(x);
    // The tables cos and sin have the dimensions [sequence, features] or
    // [batch, sequence, features].
    if (c.dims != s.dims || c.dims.size() < 2 || c.dims.size() > 3 ||
        c.dims.back() != dim)
      return failure();
    int64_t sequence = c.dims[c.dims.size() - 2];
    int64_t batch = c.dims.size() == 3 ? c.dims[0] : -1;
    if (batch < 0)
      for (int64_t d = 0; d < rank && batch < 0; ++d)
        if (d != sequence && d != dim)
          batch = d;
    if (!hasEqualHalves(c.source) || !hasEqualHalves(s.source))
      return failure();
    Value halfCos = halfOf(c.source, rewriter);
    Value halfSin = halfOf(s.source, rewriter);
    // [batch, sequence, ..., features]
    Dims order;
    if (batch >= 0)
      order.push_back(batch);
    order.push_back(sequence);
    for (int64_t d = 0; d < rank; ++d)
      if (d != batch && d != sequence && d != dim)
        order.push_back(d);
    order.push_back(dim);
    Value rows = transposeTo(rewriter, loc, x, order);
    Dims plain(shapeOf(rows)), shape = plain;
    if (batch < 0)
      shape.insert(shape.begin(), 1);
    rows = reshapeTo(rewriter, loc, rows, shape);
    Value result = RotaryOp::create(rewriter, loc, rows.getType(), rows,
                                    halfCos, halfSin, /*interleaved=*/false,
                                    /*inverse=*/false);
    result = reshapeTo(rewriter, loc, result, plain);
    rewriter.replaceOp(op, transposeTo(rewriter, loc, result, inverse(order)));
    return success();
  }
};

} // namespace

void populateRaiseRotaryPatterns(RewritePatternSet &patterns) {
  patterns.add<RaiseRotary>(patterns.getContext());
}

} // namespace cleave::nn
