// nn-drop-zero-sums: some gradients are zero by the structure of attention, and
// are computed as zero up to rounding. This pass makes them exactly zero.

#include "cleave/Autodiff/Passes.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Support/ValueUtils.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/OperationSupport.h"

namespace cleave {
#define GEN_PASS_DEF_DROPZEROSUMSPASS
#include "cleave/Autodiff/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;

namespace {

/// Says for each dimension of a value whether a later sum runs over it.
using Dims = SmallVector<bool>;

/// A sum runs over some dimensions of a reshape's result (`dims`). Returns the
/// dimensions of the reshape's input that the sum runs over completely: all
/// factors of the dimension (see ShardingRule) are in summed dimensions of the
/// result. This includes dimensions of size 1, which have no factors.
Dims beforeReshape(nn::ReshapeOp op, const Dims &dims) {
  ShardingRule rule = ShardingRule::of(op);
  SmallVector<bool> isSummed(rule.factors.size(), false);
  for (auto [dim, made] : llvm::enumerate(rule.results[0]))
    for (int64_t factor : made)
      isSummed[factor] = dims[dim];
  Dims before;
  for (const DimFactors &made : rule.operands[0])
    before.push_back(
        llvm::all_of(made, [&](int64_t factor) { return isSummed[factor]; }));
  return before;
}

/// Returns the value without the operations that mark it as saved (nn.save).
Value originOf(Value value) {
  while (auto save = value.getDefiningOp<nn::SaveOp>())
    value = save.getInput();
  return value;
}

/// Returns whether `left` and `right` are equal. An nn.save is equal to its
/// operand, and a clone of a layout operation in the backward pass to its
/// original.
bool isSame(Value left, Value right) {
  left = originOf(left);
  right = originOf(right);
  if (left == right)
    return true;
  auto a = dyn_cast<OpResult>(left), b = dyn_cast<OpResult>(right);
  if (!a || !b || a.getResultNumber() != b.getResultNumber() ||
      a.getOwner()->getNumOperands() > 1)
    return false;
  return OperationEquivalence::isEquivalentTo(
      a.getOwner(), b.getOwner(),
      [](Value x, Value y) { return success(isSame(x, y)); },
      /*markEquivalent=*/nullptr, OperationEquivalence::IgnoreLocations);
}

/// Returns the number that all elements of a value are equal to, if this number
/// is known.
std::optional<APFloat> splatOf(Value value) {
  value = originOf(value);
  if (auto spread = value.getDefiningOp<nn::BroadcastOp>())
    return splatOf(spread.getInput());
  DenseFPElementsAttr constant;
  if (matchPattern(value, m_Constant(&constant)) && constant.isSplat())
    return constant.getSplatValue<APFloat>();
  return std::nullopt;
}

/// Returns the dimensions along which elements may differ.
Dims varyingOf(Value value) {
  value = originOf(value);
  Dims varying(typeOf(value).getRank(), !splatOf(value));
  auto spread = value.getDefiningOp<nn::BroadcastOp>();
  if (!spread)
    return varying;
  Dims before = varyingOf(spread.getInput());
  varying.assign(varying.size(), false);
  for (auto [from, to] : llvm::enumerate(spread.getDims()))
    varying[to] = before[from];
  return varying;
}

/// The index of an operand, and the dimensions of this operand that a later sum
/// runs over.
struct Summed {
  unsigned operand;
  Dims dims;
};

/// Looks through operand `operand` of a product or quotient, if the other
/// factor is constant along summed dimensions: the sum over such a dimension is
/// the sum of this operand times the factor. Appends the operand to `found`.
void throughFactor(Operation *op, unsigned operand, const Dims &dims,
                   SmallVectorImpl<Summed> &found) {
  Value factor = op->getOperand(1 - operand);
  std::optional<APFloat> splat = splatOf(factor);
  bool divides = isa<arith::DivFOp>(op);
  if (splat && (!splat->isFinite() || (divides && splat->isZero())))
    return;
  Dims rest = dims;
  for (auto [dim, varies] : llvm::enumerate(varyingOf(factor)))
    rest[dim] = rest[dim] && !varies;
  found.push_back({operand, rest});
}

/// Looks through a product: a label of the result that only one operand has is
/// a dimension of this operand alone. The sum over it is computed before the
/// product. Appends both operands to `found`.
void throughProduct(nn::EinsumOp op, const Dims &dims,
                    SmallVectorImpl<Summed> &found) {
  nn::EinsumOp::Labels labels = op.getLabels();
  const std::string *sides[] = {&labels.lhs, &labels.rhs};
  for (unsigned side : {0u, 1u}) {
    Dims inner;
    for (char label : *sides[side]) {
      size_t at = labels.result.find(label);
      inner.push_back(sides[1 - side]->find(label) == std::string::npos &&
                      at != std::string::npos && dims[at]);
    }
    found.push_back({side, inner});
  }
}

/// Returns operands of `op` with some of their dimensions, such that the result
/// sums to zero over `dims` if one of these operands sums to zero over its
/// returned dimensions. This holds if the operation moves elements, scales them
/// uniformly, or is linear.
SmallVector<Summed> through(Operation *op, const Dims &dims) {
  SmallVector<Summed> found;
  if (isa<arith::NegFOp, arith::ExtFOp, arith::TruncFOp, nn::SaveOp>(op))
    found.push_back({0, dims});
  if (auto reshape = dyn_cast<nn::ReshapeOp>(op))
    found.push_back({0, beforeReshape(reshape, dims)});
  if (auto transpose = dyn_cast<nn::TransposeOp>(op)) {
    Dims before(dims.size());
    for (auto [to, from] : llvm::enumerate(transpose.getPermutation()))
      before[from] = dims[to];
    found.push_back({0, before});
  }
  if (auto pad = dyn_cast<nn::PadOp>(op); pad && pad.getValue().isZero())
    found.push_back({0, dims});
  if (auto slice = dyn_cast<nn::SliceOp>(op)) {
    Dims whole = dims; // part of a zero sum need not be zero
    for (auto [dim, size] :
         llvm::enumerate(typeOf(slice.getInput()).getShape()))
      whole[dim] = dims[dim] && slice.getSizes()[dim] == size;
    found.push_back({0, whole});
  }
  if (auto reduce = dyn_cast<nn::ReduceOp>(op);
      reduce && reduce.getCombiner() == nn::Combiner::Sum) {
    Dims before;
    size_t kept = 0;
    for (int64_t dim = 0, rank = typeOf(reduce.getInput()).getRank();
         dim < rank; ++dim)
      before.push_back(llvm::is_contained(reduce.getDims(), dim) ||
                       dims[kept++]);
    found.push_back({0, before});
  }
  if (isa<arith::MulFOp, arith::DivFOp>(op))
    throughFactor(op, 0, dims, found);
  if (isa<arith::MulFOp>(op))
    throughFactor(op, 1, dims, found);
  if (auto einsum = dyn_cast<nn::EinsumOp>(op))
    throughProduct(einsum, dims, found);
  return found;
}

/// Returns the softmax y if `value` is the gradient of its input, y * (g -
/// sum(g * y)), where g is the cotangent of y and the row sum is broadcast.
/// Returns null if `value` is anything else.
nn::SoftmaxOp softmaxOfGrad(Value value) {
  auto product = value.getDefiningOp<arith::MulFOp>();
  if (!product)
    return {};
  for (unsigned side : {0u, 1u}) {
    Value y = product->getOperand(side);
    auto softmax = originOf(y).getDefiningOp<nn::SoftmaxOp>();
    auto centred = product->getOperand(1 - side).getDefiningOp<arith::SubFOp>();
    if (!softmax || !centred)
      continue;
    int64_t last = typeOf(y).getRank() - 1;
    auto spread = centred.getRhs().getDefiningOp<nn::BroadcastOp>();
    if (!spread || !llvm::equal(spread.getDims(), llvm::seq<int64_t>(0, last)))
      continue;
    auto sum = spread.getInput().getDefiningOp<nn::ReduceOp>();
    if (!sum || sum.getCombiner() != nn::Combiner::Sum ||
        sum.getDims() != ArrayRef<int64_t>{last})
      continue;
    auto inner = sum.getInput().getDefiningOp<arith::MulFOp>();
    Value g = centred.getLhs();
    if (inner && ((isSame(inner.getLhs(), g) && isSame(inner.getRhs(), y)) ||
                  (isSame(inner.getLhs(), y) && isSame(inner.getRhs(), g))))
      return softmax;
  }
  return {};
}

/// Returns whether `value` is a tensor of attention scores: products of queries
/// and keys, possibly scaled and moved. Such scores are always greater than the
/// lowest finite number. So if a masked score has this value, the mask has
/// written it.
bool isProduct(Value value) {
  Operation *def = originOf(value).getDefiningOp();
  if (isa_and_present<nn::EinsumOp>(def))
    return true;
  if (isa_and_present<arith::ExtFOp, arith::TruncFOp, nn::ReshapeOp,
                      nn::TransposeOp>(def))
    return isProduct(def->getOperand(0));
  return isa_and_present<arith::MulFOp, arith::DivFOp>(def) &&
         splatOf(def->getOperand(1)) && isProduct(def->getOperand(0));
}

/// A mask replaces some scores by a constant. Returns whether the cotangents of
/// the other scores then still sum to zero in each row. This is so if the
/// constant is -inf, because a masked score then has probability 0 and
/// cotangent 0. It is also so for the lowest finite number: if some score of
/// the row is not masked, the masked ones have probability 0; if all are
/// masked, there are no other scores.
bool isMasked(nn::SoftmaxOp softmax, Value condition, unsigned kept) {
  Value scores = originOf(softmax.getInput());
  while (
      isa_and_present<arith::ExtFOp, arith::TruncFOp>(scores.getDefiningOp()))
    scores = originOf(scores.getDefiningOp()->getOperand(0));
  auto mask = scores.getDefiningOp<arith::SelectOp>();
  if (!mask || !isSame(mask.getCondition(), condition))
    return false;
  std::optional<APFloat> fill = splatOf(mask->getOperand(3 - kept));
  if (!fill || !fill->isNegative())
    return false;
  return fill->isInfinity() ||
         (fill->isLargest() && isProduct(mask->getOperand(kept)));
}

/// Looks through the derivative of a mask: returns the cotangents of the scores
/// that it masks, or the value itself if there is no mask.
Value beforeMask(Value value) {
  auto select = value.getDefiningOp<arith::SelectOp>();
  if (!select)
    return value;
  for (unsigned kept : {1u, 2u}) {
    std::optional<APFloat> other = splatOf(select->getOperand(3 - kept));
    Value inner = select->getOperand(kept), grad = inner;
    while (
        isa_and_present<arith::ExtFOp, arith::TruncFOp>(grad.getDefiningOp()))
      grad = grad.getDefiningOp()->getOperand(0);
    if (nn::SoftmaxOp softmax = softmaxOfGrad(grad);
        softmax && other && other->isZero() &&
        isMasked(softmax, select.getCondition(), kept))
      return grad;
  }
  return value;
}

/// Returns whether `value` sums to zero over `dims`. The softmax of a query's
/// scores does not change if one constant is added to all of them. So, for each
/// query, the cotangents of the scores sum to zero over the keys. The gradient
/// of the keys, a product of these cotangents with the queries, then also sums
/// to zero over the keys: nn.attention_grad computes it as one result, unless
/// there is a softcap; otherwise an einsum computes it. `products` is the
/// number of einsums between `value` and the sum.
bool isZeroSum(OpResult value, const Dims &dims, int products) {
  if (auto grad = dyn_cast<nn::AttentionGradOp>(value.getOwner()))
    return products == 0 && value == grad.getDKey() && dims[1] &&
           grad.getSoftcap().isZero();
  return dims.back() && softmaxOfGrad(beforeMask(value));
}

struct DropZeroSumsPass : cleave::impl::DropZeroSumsPassBase<DropZeroSumsPass> {
  using Base::Base;

  void runOnOperation() override {
    SmallVector<nn::ReduceOp> sums;
    getOperation().walk([&](nn::ReduceOp op) {
      if (op.getCombiner() == nn::Combiner::Sum)
        sums.push_back(op);
    });
    for (nn::ReduceOp op : sums) {
      Dims dims(typeOf(op.getInput()).getRank(), false);
      for (int64_t dim : op.getDims())
        dims[dim] = true;
      OpBuilder builder(op);
      seen.clear();
      Value rest = without(builder, op.getInput(), dims, 0);
      if (rest == op.getInput())
        continue;
      if (rest)
        op.getInputMutable().assign(rest);
      else
        op.replaceAllUsesWith(
            nn::createSplat(builder, op.getLoc(), typeOf(op), 0.0));
    }
  }

private:
  /// Returns `value` without those terms whose sum over `dims` is zero; null if
  /// no terms remain. `products` counts the contractions on the path from
  /// `value` to the operation that sums it.
  Value without(OpBuilder &builder, Value value, const Dims &dims,
                int products) {
    if (llvm::none_of(dims, [](bool isSummed) { return isSummed; }))
      return value;
    // Nested sums may visit the same terms many times, so results are cached.
    auto found = seen.find(value);
    if (found != seen.end() && found->second.dims == dims &&
        found->second.products == products)
      return found->second.rest;
    Value rest = withoutNew(builder, value, dims, products);
    seen[value] = {dims, products, rest};
    return rest;
  }

  Value withoutNew(OpBuilder &builder, Value value, const Dims &dims,
                   int products) {
    auto result = dyn_cast<OpResult>(value);
    if (!result)
      return value;
    if (isZeroSum(result, dims, products))
      return {};
    Operation *op = result.getOwner();
    if (isa<arith::AddFOp>(op)) {
      Value left = without(builder, op->getOperand(0), dims, products);
      Value right = without(builder, op->getOperand(1), dims, products);
      if (!left || !right)
        return left ? left : right;
      if (left == op->getOperand(0) && right == op->getOperand(1))
        return value;
      return arith::AddFOp::create(builder, op->getLoc(), left, right);
    }
    // At most one product may be on the path from the terms to the sum. A
    // second product would multiply the terms by the input of a layer, and they
    // would no longer sum to zero.
    bool isProduct = isa<nn::EinsumOp>(op);
    if (isProduct && products > 0)
      return value;
    for (const Summed &inner : through(op, dims)) {
      Value operand = op->getOperand(inner.operand);
      Value rest = without(builder, operand, inner.dims, products + isProduct);
      if (!rest)
        return {};
      if (rest == operand || isProduct) // do not duplicate a product
        continue;
      Operation *copy = builder.clone(*op);
      copy->setOperand(inner.operand, rest);
      return copy->getResult(0);
    }
    return value;
  }

  /// The results of `without` for the sum that is being rewritten (cleared for
  /// each sum).
  struct Rest {
    Dims dims;
    int products;
    Value rest;
  };
  DenseMap<Value, Rest> seen;
};

} // namespace
