// nn-drop-zero-sums: gradients that are zero by the structure of attention are
// zero to the bit.

#include "cleave/Autodiff/Passes.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/Interfaces.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"

namespace cleave {
#define GEN_PASS_DEF_DROPZEROSUMSPASS
#include "cleave/Autodiff/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;

namespace {

/// The dimensions that are summed over.
using Dims = SmallVector<bool>;

RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

/// The dimensions of a reshape's input all of whose factors are summed over.
/// Sizes of one element have none.
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

/// The operand of an operation that gives zeros for what it sums to zero: it
/// places elements, or scales all of them alike.
std::optional<std::pair<Value, Dims>> through(Operation *op, const Dims &dims) {
  if (isa<arith::NegFOp, arith::ExtFOp, arith::TruncFOp>(op))
    return std::pair(op->getOperand(0), dims);
  if (auto reshape = dyn_cast<nn::ReshapeOp>(op))
    return std::pair(reshape.getInput(), beforeReshape(reshape, dims));
  if (auto transpose = dyn_cast<nn::TransposeOp>(op)) {
    Dims before(dims.size());
    for (auto [to, from] : llvm::enumerate(transpose.getPermutation()))
      before[from] = dims[to];
    return std::pair(transpose.getInput(), before);
  }
  if (auto pad = dyn_cast<nn::PadOp>(op); pad && pad.getValue().isZero())
    return std::pair(pad.getInput(), dims);
  if (auto slice = dyn_cast<nn::SliceOp>(op)) {
    Dims whole = dims; // of a part nothing is known
    for (auto [dim, size] :
         llvm::enumerate(typeOf(slice.getInput()).getShape()))
      whole[dim] = dims[dim] && slice.getSizes()[dim] == size;
    return std::pair(slice.getInput(), whole);
  }
  if (auto reduce = dyn_cast<nn::ReduceOp>(op);
      reduce && reduce.getCombiner() == nn::Combiner::Sum) {
    Dims before;
    size_t kept = 0;
    for (int64_t dim = 0, rank = typeOf(reduce.getInput()).getRank();
         dim < rank; ++dim)
      before.push_back(llvm::is_contained(reduce.getDims(), dim) ||
                       dims[kept++]);
    return std::pair(reduce.getInput(), before);
  }
  if (auto scaled = dyn_cast<arith::MulFOp>(op))
    for (unsigned side : {0u, 1u}) {
      DenseElementsAttr factor;
      if (matchPattern(op->getOperand(side), m_Constant(&factor)) &&
          factor.isSplat())
        return std::pair(op->getOperand(1 - side), dims);
    }
  return std::nullopt;
}

/// Scores of one query and all keys are known but for a constant: the softmax
/// is the same. So the cotangents of all keys add up to zero, in every sample
/// and head; a softcap would see the constant.
bool isZeroSum(OpResult value, const Dims &dims) {
  auto grad = dyn_cast<nn::AttentionGradOp>(value.getOwner());
  return grad && value == grad.getDKey() && dims[1] &&
         grad.getSoftcap().isZero();
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
      Value rest = without(builder, op.getInput(), dims);
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
  /// What is left of a value where it is summed over `dims`, without addends
  /// that sum to zero; null where nothing is.
  Value without(OpBuilder &builder, Value value, const Dims &dims) {
    // Sums may share addends many times over.
    auto found = seen.find(value);
    if (found != seen.end() && found->second.first == dims)
      return found->second.second;
    Value rest = withoutNew(builder, value, dims);
    seen[value] = {dims, rest};
    return rest;
  }

  Value withoutNew(OpBuilder &builder, Value value, const Dims &dims) {
    auto result = dyn_cast<OpResult>(value);
    if (!result)
      return value;
    if (isZeroSum(result, dims))
      return {};
    Operation *op = result.getOwner();
    if (isa<arith::AddFOp>(op)) {
      Value left = without(builder, op->getOperand(0), dims);
      Value right = without(builder, op->getOperand(1), dims);
      if (!left || !right)
        return left ? left : right;
      if (left == op->getOperand(0) && right == op->getOperand(1))
        return value;
      return arith::AddFOp::create(builder, op->getLoc(), left, right);
    }
    auto inner = through(op, dims);
    if (!inner)
      return value;
    Value rest = without(builder, inner->first, inner->second);
    if (!rest || rest == inner->first)
      return rest ? value : Value();
    IRMapping mapping;
    mapping.map(inner->first, rest);
    return builder.clone(*op, mapping)->getResult(0);
  }

  /// What `without` gave, of the sum at hand.
  DenseMap<Value, std::pair<Dims, Value>> seen;
};

} // namespace
