// nn-roll-experts.

#include "ExpertSlots.h"
#include "FrozenRouting.h"
#include "StackParameters.h"

#include "cleave/Dialect/NN/Transforms/Passes.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/Passes.h"

#include <map>

namespace cleave {
#define GEN_PASS_DEF_ROLLEXPERTSPASS
#include "cleave/Dialect/NN/Transforms/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave::nn;

namespace {

//===----------------------------------------------------------------------===//
// Matrices that are gathered
//===----------------------------------------------------------------------===//

/// Rewrites an einsum to a grouped product if one operand has, for each
/// token-expert pair (slot), the matrix that a gather has selected for the
/// pair's expert.
struct ProductOfGathered : OpRewritePattern<EinsumOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(EinsumOp op,
                                PatternRewriter &rewriter) const override {
    EinsumOp::Labels labels = op.getLabels();
    if (succeeded(rewrite(op, op.getLhs(), labels.lhs, op.getRhs(), labels.rhs,
                          labels.result, rewriter)))
      return success();
    return rewrite(op, op.getRhs(), labels.rhs, op.getLhs(), labels.lhs,
                   labels.result, rewriter);
  }

  static LogicalResult rewrite(EinsumOp op, Value table, StringRef own,
                               Value rows, StringRef other, StringRef result,
                               PatternRewriter &rewriter) {
    auto gather = table.getDefiningOp<GatherOp>();
    if (!gather || gather.getDim() != 0 || rankOf(gather.getTable()) != 3)
      return rewriter.notifyMatchFailure(op, "no matrices are gathered");
    size_t count = rankOf(gather.getIndices());
    StringRef slots = own.take_front(count);
    auto isContracted = [&](char letter) {
      return other.contains(letter) && !result.contains(letter);
    };
    bool transposed = isContracted(own[count + 1]);
    char inner = own[count + transposed], outer = own[count + !transposed];
    if (!isContracted(inner) || other.contains(outer) ||
        !result.contains(outer) || result.size() != count + 1)
      return rewriter.notifyMatchFailure(op, "not one row for each matrix");
    // The rows, one for each token-expert pair (slot).
    Location loc = op.getLoc();
    std::string want = (slots + Twine(inner)).str();
    Dims order, dims, shape(shapeOf(gather.getIndices()));
    shape.push_back(shapeOf(rows)[other.find(inner)]);
    for (auto [dim, letter] : llvm::enumerate(want))
      if (size_t at = other.find(letter); at != StringRef::npos) {
        order.push_back(at);
        dims.push_back(dim);
      }
    if (order.size() != other.size())
      return rewriter.notifyMatchFailure(op, "the rows have other dimensions");
    Value each = broadcastTo(
        rewriter, loc, transposeTo(rewriter, loc, rows, order), shape, dims);
    shape.back() = shapeOf(op.getResult())[result.find(outer)];
    Value product = GroupedDotOp::create(
        rewriter, loc, typeOf(rows).clone(shape), each, gather.getTable(),
        gather.getIndices(), transposed);
    std::string have = (slots + Twine(outer)).str();
    Dims permutation;
    for (char letter : result)
      permutation.push_back(have.find(letter));
    rewriter.replaceOp(op, transposeTo(rewriter, loc, product, permutation));
    return success();
  }
};

/// If `value` is computed elementwise from a grouped product (nn.grouped_dot),
/// returns the dimension that enumerates the experts of a token (slots).
std::optional<int64_t> slotDimOf(Value value, unsigned depth) {
  Operation *op = value.getDefiningOp();
  if (!op || depth == 0)
    return std::nullopt;
  if (auto dot = dyn_cast<GroupedDotOp>(op))
    return rankOf(dot.getIds()) - 1;
  if (isElementwise(op))
    for (Value operand : op->getOperands())
      if (auto dim = slotDimOf(operand, depth - 1))
        return dim;
  return std::nullopt;
}

/// Rewrites a sum over a token's experts (slots), sum(y * w), to an einsum of
/// their outputs y and weights w.
struct CombineSlots : OpRewritePattern<ReduceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ReduceOp op,
                                PatternRewriter &rewriter) const override {
    auto product = op.getInput().getDefiningOp<arith::MulFOp>();
    if (op.getCombiner() != Combiner::Sum || op.getDims().size() != 1 ||
        !product)
      return rewriter.notifyMatchFailure(op, "no sum of products");
    int64_t slot = op.getDims()[0];
    for (auto [rows, factor] :
         {std::pair(product.getLhs(), product.getRhs()),
          std::pair(product.getRhs(), product.getLhs())}) {
      auto broadcast = factor.getDefiningOp<BroadcastOp>();
      if (!broadcast || !llvm::is_contained(broadcast.getDims(), slot) ||
          slotDimOf(rows, 4) != slot)
        continue;
      std::string all, own, sums;
      for (int64_t dim = 0; dim < rankOf(rows); ++dim) {
        all.push_back('a' + dim);
        if (dim != slot)
          sums.push_back('a' + dim);
      }
      for (int64_t dim : broadcast.getDims())
        own.push_back('a' + dim);
      rewriter.replaceOpWithNewOp<EinsumOp>(
          op, rewriter.getStringAttr(all + "," + own + "->" + sums), rows,
          broadcast.getInput());
      return success();
    }
    return rewriter.notifyMatchFailure(op, "no rows of slots with weights");
  }
};

/// A slice of the columns of a product becomes a product with a slice of the
/// matrix. If two matrices are stored side by side in one tensor, each is then
/// read separately, so that each can be sharded by itself.
struct SliceOfProduct : OpRewritePattern<SliceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(SliceOp op,
                                PatternRewriter &rewriter) const override {
    auto dot = op.getInput().getDefiningOp<GroupedDotOp>();
    if (!dot)
      return rewriter.notifyMatchFailure(op, "no columns of a product");
    int64_t last = rankOf(op.getResult()) - 1;
    for (int64_t dim = 0; dim <= last; ++dim)
      if (op.getStrides()[dim] != 1 ||
          (dim < last && op.getSizes()[dim] != shapeOf(dot)[dim]))
        return rewriter.notifyMatchFailure(op, "cuts rows, or takes steps");
    int64_t columns = dot.getTransposed() ? 1 : 2;
    Dims offsets(3, 0), strides(3, 1), sizes(shapeOf(dot.getMatrices()));
    offsets[columns] = op.getOffsets()[last];
    sizes[columns] = op.getSizes()[last];
    Value matrices = SliceOp::create(rewriter, op.getLoc(), dot.getMatrices(),
                                     offsets, sizes, strides);
    rewriter.replaceOpWithNewOp<GroupedDotOp>(op, op.getType(), dot.getInput(),
                                              matrices, dot.getIds(),
                                              dot.getTransposed());
    return success();
  }
};

//===----------------------------------------------------------------------===//
// Sums over experts
//===----------------------------------------------------------------------===//

/// Rewrites a sum over a dimension of experts to a sum over the experts that
/// each token chose. Does nothing if `op` is no such sum.
void rollTiled(Operation *op) {
  Value result = op->getResult(0);
  std::optional<ExpertProduct> product;
  if (auto reduce = dyn_cast<ReduceOp>(op)) {
    if (reduce.getCombiner() == Combiner::Sum && reduce.getDims().size() == 1)
      product =
          productOf(Family::along(reduce.getInput(), reduce.getDims()[0]));
  } else if (auto einsum = dyn_cast<EinsumOp>(op)) {
    product = productOfContracted(einsum);
  }
  if (!product || choicesOf(product->test->ids) != product->experts)
    return;
  OpBuilder builder(op);
  Value sum = sumBySlots(builder, op->getLoc(), *product, shapeOf(result));
  if (!sum)
    return;
  result.replaceAllUsesWith(sum);
  op->erase();
}

/// A tree of additions.
struct Sum {
  SmallVector<Value> terms; // in order, zeros left out
  int64_t empty = 0; // number of zeros, except those with which a sum begins

  explicit Sum(arith::AddFOp root) { visit(root); }

private:
  static bool isInner(Value value) {
    return value.getDefiningOp<arith::AddFOp>() && value.hasOneUse();
  }

  void visit(arith::AddFOp add) {
    bool begins = !isInner(add.getLhs()) && !isInner(add.getRhs());
    for (Value value : {add.getLhs(), add.getRhs()})
      if (isInner(value))
        visit(value.getDefiningOp<arith::AddFOp>());
      else if (splatOf(value) != 0.0)
        terms.push_back(value);
      else if (!std::exchange(begins, false))
        ++empty;
  }
};

bool isPartOfSum(arith::AddFOp add) {
  return add->hasOneUse() && isa<arith::AddFOp>(*add->user_begin());
}

/// Returns the experts that are not among `found`.
std::string spellMissing(const std::map<int64_t, Value> &found, int64_t count) {
  std::string text;
  int64_t named = 0, missing = 0;
  for (int64_t expert = 0; expert < count; ++expert)
    if (!found.count(expert) && ++missing && named < 8) {
      text += (text.empty() ? "" : ", ") + std::to_string(expert);
      ++named;
    }
  return missing > named ? text + ", ..." : text;
}

/// Collects the terms of an unrolled sum over experts, one for each expert, and
/// rewrites the sum. An expert may have no term only if the sum contains a zero
/// in its place; otherwise the rewrite fails.
LogicalResult rollUnrolled(arith::AddFOp root) {
  Sum all(root);
  SmallVector<Value> rest;
  std::optional<ExpertTest> test;
  std::map<int64_t, Value> experts;
  for (Value term : all.terms) {
    auto found = expertOf(term);
    if (found && (!test || *test == found->first) &&
        choicesOf(found->first.ids) &&
        experts.try_emplace(found->second, term).second)
      test = found->first;
    else
      rest.push_back(term);
  }
  if (!test)
    return success();
  int64_t count = *choicesOf(test->ids);
  auto isExpert = [&](int64_t id) { return id >= 0 && id < count; };
  if (int64_t(experts.size()) + all.empty < count &&
      llvm::all_of(llvm::make_first_range(experts), isExpert))
    return root.emitError("adds up ")
           << experts.size() << " of the " << count
           << " experts among which its router chooses; missing: "
           << spellMissing(experts, count)
           << "; tracing leaves out the experts that the sample did not "
              "choose: export the model with a loop over all experts";
  if (int64_t(experts.size()) != count ||
      !llvm::all_of(llvm::make_first_range(experts), isExpert))
    return success();
  SmallVector<Value> members(llvm::make_second_range(experts));
  if (members.size() == 1)
    return success();
  std::optional<ExpertProduct> product = productOf(Family::of(members));
  if (!product)
    return success();
  OpBuilder builder(root);
  Value sum = sumBySlots(builder, root.getLoc(), *product, shapeOf(root));
  if (!sum)
    return success();
  Value before;
  for (Value value : rest)
    before = before
                 ? arith::AddFOp::create(builder, root.getLoc(), before, value)
                       .getResult()
                 : value;
  if (before)
    sum = arith::AddFOp::create(builder, root.getLoc(), before, sum);
  root.replaceAllUsesWith(sum);
  root.erase();
  return success();
}

struct RollExpertsPass : cleave::impl::RollExpertsPassBase<RollExpertsPass> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (function.isDeclaration() || !function.getBody().hasOneBlock())
      return;
    if (failed(checkRouting(function)))
      return signalPassFailure();
    SmallVector<Operation *> sums;
    for (Operation &op : function.front())
      if (isa<ReduceOp, EinsumOp, arith::AddFOp>(op))
        sums.push_back(&op);
    for (Operation *op : sums) {
      auto add = dyn_cast<arith::AddFOp>(op);
      if (!add) {
        rollTiled(op);
      } else if (!isPartOfSum(add)) {
        if (failed(rollUnrolled(add)))
          return signalPassFailure();
      }
    }
    RewritePatternSet patterns(&getContext());
    patterns.add<ProductOfGathered, CombineSlots, SliceOfProduct>(
        &getContext());
    if (failed(applyPatternsGreedily(function, std::move(patterns))))
      return signalPassFailure();
    stackParameters(function);
    bool anyExperts = false;
    function.walk([&](GroupedDotOp) { anyExperts = true; });
    if (anyExperts)
      sortByUse(function);
  }
};
} // namespace
