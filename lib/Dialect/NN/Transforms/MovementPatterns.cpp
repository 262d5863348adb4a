// Moves broadcasts and transposes down, towards operations that absorb them. So
// elementwise work is done on the smallest shape, and graphs of different
// exporters get the same order of dimensions.

#include "Dataflow.h"

using namespace mlir;

namespace cleave::nn {

namespace {

/// broadcast(broadcast(x)).
struct ComposeBroadcasts : OpRewritePattern<BroadcastOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(BroadcastOp op,
                                PatternRewriter &rewriter) const override {
    auto inner = op.getInput().getDefiningOp<BroadcastOp>();
    if (!inner)
      return rewriter.notifyMatchFailure(op, "operand is no broadcast");
    Dims dims;
    for (int64_t dim : inner.getDims())
      dims.push_back(op.getDims()[dim]);
    rewriter.replaceOpWithNewOp<BroadcastOp>(op, op.getType(), inner.getInput(),
                                             dims);
    return success();
  }
};

/// transpose(broadcast(x)) -> broadcast(transpose(x)).
struct TransposeOfBroadcast : OpRewritePattern<TransposeOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(TransposeOp op,
                                PatternRewriter &rewriter) const override {
    auto broadcast = op.getInput().getDefiningOp<BroadcastOp>();
    if (!broadcast)
      return rewriter.notifyMatchFailure(op, "operand is no broadcast");
    Dims where = inverse(op.getPermutation()), dims;
    for (int64_t dim : broadcast.getDims())
      dims.push_back(where[dim]);
    Dims order = allDims(dims.size());
    llvm::sort(order, [&](int64_t a, int64_t b) { return dims[a] < dims[b]; });
    llvm::sort(dims);
    Value source =
        transposeTo(rewriter, op.getLoc(), broadcast.getInput(), order);
    rewriter.replaceOpWithNewOp<BroadcastOp>(op, op.getType(), source, dims);
    return success();
  }
};

/// If all operands of an elementwise operation are broadcast along some
/// dimension, computes the operation without this dimension and broadcasts the
/// result.
struct NarrowElementwise : RewritePattern {
  NarrowElementwise(MLIRContext *context)
      : RewritePattern(MatchAnyOpTypeTag(), 1, context) {}
  LogicalResult matchAndRewrite(Operation *op,
                                PatternRewriter &rewriter) const override {
    if (!isElementwise(op))
      return rewriter.notifyMatchFailure(op, "not elementwise");
    int64_t rank = rankOf(op->getResult(0));
    SmallVector<bool> live(rank, false);
    bool anyBroadcast = false;
    for (Value operand : op->getOperands()) {
      if (splatOf(operand))
        continue;
      anyBroadcast |= bool(operand.getDefiningOp<BroadcastOp>());
      for (int64_t dim : narrow(operand).dims)
        live[dim] = true;
    }
    if (!anyBroadcast || !llvm::is_contained(live, false))
      return rewriter.notifyMatchFailure(op, "varies along all dimensions");
    Dims kept, position(rank, -1), shape;
    for (int64_t dim = 0; dim < rank; ++dim)
      if (live[dim]) {
        position[dim] = kept.size();
        kept.push_back(dim);
        shape.push_back(shapeOf(op->getResult(0))[dim]);
      }
    SmallVector<Value> operands;
    for (Value operand : op->getOperands()) {
      if (Value splat = reshapedSplat(rewriter, op->getLoc(), operand, shape)) {
        operands.push_back(splat);
        continue;
      }
      Narrow small = narrow(operand);
      for (int64_t &dim : small.dims)
        dim = position[dim];
      operands.push_back(
          broadcastTo(rewriter, op->getLoc(), small.source, shape, small.dims));
    }
    Value result = cloneElementwise(rewriter, op, operands, shape);
    rewriter.replaceOpWithNewOp<BroadcastOp>(op, op->getResult(0).getType(),
                                             result, kept);
    return success();
  }
};

/// elementwise(transpose(x), transpose(y)) -> transpose(elementwise(x, y)).
struct SinkTransposeElementwise : RewritePattern {
  SinkTransposeElementwise(MLIRContext *context)
      : RewritePattern(MatchAnyOpTypeTag(), 1, context) {}
  LogicalResult matchAndRewrite(Operation *op,
                                PatternRewriter &rewriter) const override {
    if (!isElementwise(op))
      return rewriter.notifyMatchFailure(op, "not elementwise");
    ArrayRef<int64_t> permutation;
    for (Value operand : op->getOperands())
      if (auto transpose = operand.getDefiningOp<TransposeOp>()) {
        // A transpose of a broadcast is left to the pattern
        // TransposeOfBroadcast. If both patterns handled it, and another
        // broadcast followed, they would undo each other forever.
        if (transpose.getInput().getDefiningOp<BroadcastOp>())
          return rewriter.notifyMatchFailure(op, "a broadcast is transposed");
        permutation = transpose.getPermutation();
      }
    if (permutation.empty())
      return rewriter.notifyMatchFailure(op, "no operand is transposed");
    for (Value operand : op->getOperands()) {
      auto transpose = operand.getDefiningOp<TransposeOp>();
      bool fits = transpose ? transpose.getPermutation() == permutation
                            : splatOf(operand).has_value() ||
                                  operand.getDefiningOp<BroadcastOp>();
      if (!fits)
        return rewriter.notifyMatchFailure(op, "operands differ in order");
    }
    Dims back = inverse(permutation), shape(permutation.size());
    for (auto [index, dim] : llvm::enumerate(permutation))
      shape[dim] = shapeOf(op->getResult(0))[index];
    SmallVector<Value> operands;
    for (Value operand : op->getOperands()) {
      if (auto transpose = operand.getDefiningOp<TransposeOp>())
        operands.push_back(transpose.getInput());
      else if (Value splat =
                   reshapedSplat(rewriter, op->getLoc(), operand, shape))
        operands.push_back(splat);
      else
        operands.push_back(transposeTo(rewriter, op->getLoc(), operand, back));
    }
    Value result = cloneElementwise(rewriter, op, operands, shape);
    rewriter.replaceOpWithNewOp<TransposeOp>(op, result, permutation);
    return success();
  }
};

/// slice(transpose(x)) -> transpose(slice(x)).
struct SliceOfTranspose : OpRewritePattern<SliceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(SliceOp op,
                                PatternRewriter &rewriter) const override {
    auto transpose = op.getInput().getDefiningOp<TransposeOp>();
    if (!transpose)
      return rewriter.notifyMatchFailure(op, "operand is not transposed");
    ArrayRef<int64_t> permutation = transpose.getPermutation();
    Dims offsets(permutation.size()), sizes = offsets, strides = offsets;
    for (auto [index, dim] : llvm::enumerate(permutation)) {
      offsets[dim] = op.getOffsets()[index];
      sizes[dim] = op.getSizes()[index];
      strides[dim] = op.getStrides()[index];
    }
    Value slice = SliceOp::create(rewriter, op.getLoc(), transpose.getInput(),
                                  offsets, sizes, strides);
    rewriter.replaceOpWithNewOp<TransposeOp>(op, slice, permutation);
    return success();
  }
};

/// slice(broadcast(x)) -> broadcast(slice(x)).
struct SliceOfBroadcast : OpRewritePattern<SliceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(SliceOp op,
                                PatternRewriter &rewriter) const override {
    auto broadcast = op.getInput().getDefiningOp<BroadcastOp>();
    if (!broadcast)
      return rewriter.notifyMatchFailure(op, "operand is no broadcast");
    Dims offsets, sizes, strides;
    for (int64_t dim : broadcast.getDims()) {
      offsets.push_back(op.getOffsets()[dim]);
      sizes.push_back(op.getSizes()[dim]);
      strides.push_back(op.getStrides()[dim]);
    }
    Value slice = rewriter.createOrFold<SliceOp>(
        op.getLoc(), broadcast.getInput(), offsets, sizes, strides);
    rewriter.replaceOpWithNewOp<BroadcastOp>(op, op.getType(), slice,
                                             broadcast.getDims());
    return success();
  }
};

/// slice(slice(x)).
struct ComposeSlices : OpRewritePattern<SliceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(SliceOp op,
                                PatternRewriter &rewriter) const override {
    auto inner = op.getInput().getDefiningOp<SliceOp>();
    if (!inner)
      return rewriter.notifyMatchFailure(op, "operand is no slice");
    Dims offsets, strides;
    for (size_t dim = 0; dim < op.getOffsets().size(); ++dim) {
      offsets.push_back(inner.getOffsets()[dim] +
                        op.getOffsets()[dim] * inner.getStrides()[dim]);
      strides.push_back(op.getStrides()[dim] * inner.getStrides()[dim]);
    }
    rewriter.replaceOpWithNewOp<SliceOp>(op, inner.getInput(), offsets,
                                         op.getSizes(), strides);
    return success();
  }
};

/// slice(concat(x, y)) -> slice(x), if the slice reads nothing of y.
struct SliceOfConcat : OpRewritePattern<SliceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(SliceOp op,
                                PatternRewriter &rewriter) const override {
    auto concat = op.getInput().getDefiningOp<ConcatOp>();
    if (!concat)
      return rewriter.notifyMatchFailure(op, "operand is no concat");
    int64_t dim = concat.getDim(), begin = 0, first = op.getOffsets()[dim],
            last = first + (op.getSizes()[dim] - 1) * op.getStrides()[dim];
    for (Value input : concat.getInputs()) {
      int64_t end = begin + shapeOf(input)[dim];
      if (begin <= first && last < end && op.getSizes()[dim] > 0) {
        Dims offsets(op.getOffsets());
        offsets[dim] -= begin;
        rewriter.replaceOp(
            op, rewriter.createOrFold<SliceOp>(op.getLoc(), input, offsets,
                                               op.getSizes(), op.getStrides()));
        return success();
      }
      begin = end;
    }
    return rewriter.notifyMatchFailure(op, "reads more than one operand");
  }
};

/// transpose(concat(transpose(x), y)) -> concat(x, transpose(y)).
struct TransposeOfConcat : OpRewritePattern<TransposeOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(TransposeOp op,
                                PatternRewriter &rewriter) const override {
    auto concat = op.getInput().getDefiningOp<ConcatOp>();
    ArrayRef<int64_t> permutation = op.getPermutation();
    if (!concat || llvm::none_of(concat.getInputs(), [&](Value input) {
          auto inner = input.getDefiningOp<TransposeOp>();
          return inner && undoes(inner.getPermutation(), permutation);
        }))
      return rewriter.notifyMatchFailure(op, "undoes no transpose");
    SmallVector<Value> inputs;
    for (Value input : concat.getInputs())
      inputs.push_back(
          rewriter.createOrFold<TransposeOp>(op.getLoc(), input, permutation));
    rewriter.replaceOpWithNewOp<ConcatOp>(
        op, inputs,
        llvm::find(permutation, int64_t(concat.getDim())) -
            permutation.begin());
    return success();
  }

  static bool undoes(ArrayRef<int64_t> first, ArrayRef<int64_t> second) {
    return llvm::all_of(llvm::enumerate(second), [&](auto entry) {
      return first[entry.value()] == int64_t(entry.index());
    });
  }
};

/// concat(transpose(x), transpose(y)) -> transpose(concat(x, y)).
struct ConcatOfTransposes : OpRewritePattern<ConcatOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ConcatOp op,
                                PatternRewriter &rewriter) const override {
    auto first = op.getInputs()[0].getDefiningOp<TransposeOp>();
    if (!first)
      return rewriter.notifyMatchFailure(op, "operand is not transposed");
    SmallVector<Value> inputs;
    for (Value input : op.getInputs()) {
      auto transpose = input.getDefiningOp<TransposeOp>();
      if (!transpose || transpose.getPermutation() != first.getPermutation())
        return rewriter.notifyMatchFailure(op, "operands differ in order");
      inputs.push_back(transpose.getInput());
    }
    Value concat = ConcatOp::create(rewriter, op.getLoc(), inputs,
                                    first.getPermutation()[op.getDim()]);
    rewriter.replaceOpWithNewOp<TransposeOp>(op, concat,
                                             first.getPermutation());
    return success();
  }
};

/// concat(broadcast(x), broadcast(y)) along a dimension that varies.
struct ConcatOfBroadcasts : OpRewritePattern<ConcatOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ConcatOp op,
                                PatternRewriter &rewriter) const override {
    auto first = op.getInputs()[0].getDefiningOp<BroadcastOp>();
    if (!first || !llvm::is_contained(first.getDims(), int64_t(op.getDim())))
      return rewriter.notifyMatchFailure(op, "operand is no such broadcast");
    SmallVector<Value> inputs;
    for (Value input : op.getInputs()) {
      auto broadcast = input.getDefiningOp<BroadcastOp>();
      if (!broadcast || broadcast.getDims() != first.getDims())
        return rewriter.notifyMatchFailure(op, "operands differ");
      inputs.push_back(broadcast.getInput());
    }
    int64_t dim = llvm::find(first.getDims(), int64_t(op.getDim())) -
                  first.getDims().begin();
    Value concat = ConcatOp::create(rewriter, op.getLoc(), inputs, dim);
    rewriter.replaceOpWithNewOp<BroadcastOp>(op, op.getType(), concat,
                                             first.getDims());
    return success();
  }
};

/// reduce(transpose(x)) -> transpose(reduce(x)).
struct ReduceOfTranspose : OpRewritePattern<ReduceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ReduceOp op,
                                PatternRewriter &rewriter) const override {
    auto transpose = op.getInput().getDefiningOp<TransposeOp>();
    if (!transpose)
      return rewriter.notifyMatchFailure(op, "operand is not transposed");
    ArrayRef<int64_t> permutation = transpose.getPermutation();
    Dims dims, rest;
    for (auto [index, dim] : llvm::enumerate(permutation))
      (llvm::is_contained(op.getDims(), int64_t(index)) ? dims : rest)
          .push_back(dim);
    llvm::sort(dims);
    Value reduced = ReduceOp::create(rewriter, op.getLoc(), op.getCombiner(),
                                     transpose.getInput(), dims);
    // Renumbers the remaining dimensions.
    Dims order;
    for (int64_t dim : rest)
      order.push_back(llvm::count_if(rest, [&](int64_t d) { return d < dim; }));
    rewriter.replaceOp(op, transposeTo(rewriter, op.getLoc(), reduced, order));
    return success();
  }
};

/// softmax(transpose(x)) -> transpose(softmax(x)), if the transpose keeps the
/// last dimension, along which softmax runs.
struct SoftmaxOfTranspose : OpRewritePattern<SoftmaxOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(SoftmaxOp op,
                                PatternRewriter &rewriter) const override {
    auto transpose = op.getInput().getDefiningOp<TransposeOp>();
    if (!transpose || transpose.getPermutation().back() !=
                          int64_t(transpose.getPermutation().size()) - 1)
      return rewriter.notifyMatchFailure(op, "rows are not whole");
    Value input = transpose.getInput();
    Value rows =
        SoftmaxOp::create(rewriter, op.getLoc(), input.getType(), input);
    rewriter.replaceOpWithNewOp<TransposeOp>(op, rows,
                                             transpose.getPermutation());
    return success();
  }
};

/// Replaces an iota with several dimensions by the broadcast of a
/// one-dimensional iota.
struct IotaIsList : OpRewritePattern<IotaOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(IotaOp op,
                                PatternRewriter &rewriter) const override {
    auto type = op.getType();
    if (type.getRank() == 1)
      return rewriter.notifyMatchFailure(op, "is a list");
    int64_t dim = op.getDim();
    Value list =
        IotaOp::create(rewriter, op.getLoc(),
                       cast<RankedTensorType>(type).clone(
                           {cast<RankedTensorType>(type).getDimSize(dim)}),
                       0);
    rewriter.replaceOpWithNewOp<BroadcastOp>(op, type, list,
                                             ArrayRef<int64_t>(dim));
    return success();
  }
};

} // namespace

void populateMovementPatterns(RewritePatternSet &patterns) {
  patterns.add<ComposeBroadcasts, TransposeOfBroadcast, NarrowElementwise,
               SinkTransposeElementwise, SliceOfTranspose, SliceOfBroadcast,
               SliceOfConcat, TransposeOfConcat, ComposeSlices,
               ConcatOfTransposes, ConcatOfBroadcasts, ReduceOfTranspose,
               SoftmaxOfTranspose, IotaIsList>(patterns.getContext());
}

} // namespace cleave::nn
