#include "DropoutPlaces.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/ShardingRule.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::autodiff;

namespace {

bool isOfFloats(Value value) {
  return isa<FloatType>(
      cast<RankedTensorType>(value.getType()).getElementType());
}

/// Moves, rounds or saves its only operand.
bool isMove(Operation *op) {
  return isa_and_nonnull<nn::TransposeOp, nn::ReshapeOp, nn::SaveOp,
                         arith::ExtFOp, arith::TruncFOp>(op);
}

class Places {
public:
  Places(func::FuncOp func, const nn::BatchFlow &flow)
      : body(func.getBody().front()), flow(flow) {}

  SmallVector<DropoutPlace> find() {
    findReadByContractions();
    for (auto add : body.getOps<arith::AddFOp>())
      for (unsigned side : {0, 1})
        if (isBranch(add, side)) {
          places[add->getOperand(side)].push_back(&add->getOpOperand(side));
          joins.insert(add);
        }
    llvm::DenseSet<Value> rows;
    for (Operation &op : body)
      for (Value value : op.getResults())
        if (isEmbedding(value) && beginsStream(value)) {
          rows.insert(value);
          for (OpOperand &use : value.getUses())
            if (!isEmbedding(use.getOwner()))
              places[value].push_back(&use);
        }
    SmallVector<DropoutPlace> found;
    for (auto &[value, uses] : places)
      found.push_back({value, std::move(uses), rows.contains(value)});
    llvm::sort(found, [](const DropoutPlace &a, const DropoutPlace &b) {
      return a.value.getDefiningOp()->isBeforeInBlock(b.value.getDefiningOp());
    });
    return found;
  }

private:
  /// Finds the values that a later product with weights depends on. Losses and
  /// predictions are not among them.
  void findReadByContractions() {
    for (Operation &op : llvm::reverse(body)) {
      bool reads =
          contracts(&op) || llvm::any_of(op.getResults(), [&](Value result) {
            return readByContractions.contains(result);
          });
      if (reads)
        readByContractions.insert_range(op.getOperands());
    }
  }

  /// Whether all elements are the same factor.
  static bool isScalar(Value value) {
    if (auto broadcast = value.getDefiningOp<nn::BroadcastOp>())
      return broadcast.getInput().getType().getRank() == 0;
    DenseElementsAttr constant;
    return matchPattern(value, m_Constant(&constant)) && constant.isSplat();
  }

  /// If the operation moves a batched operand, or adds or multiplies it with an
  /// operand that does not depend on samples, returns the batched operand.
  /// Returns null for other operations.
  Value withWeights(Operation *op) const {
    if (isMove(op))
      return op->getOperand(0);
    if (!isa_and_nonnull<arith::MulFOp, arith::DivFOp, arith::AddFOp,
                         arith::SubFOp>(op))
      return {};
    for (unsigned side : {0, 1})
      if (flow.isBatched(op->getOperand(side)) &&
          !flow.isBatched(op->getOperand(1 - side)))
        return op->getOperand(side);
    return {};
  }

  /// Whether the operation sums products of a batched operand and an operand
  /// that does not depend on samples, such as a linear layer or a convolution.
  bool isContraction(Operation *op) const {
    if (llvm::none_of(op->getOperands(),
                      [&](Value v) { return flow.isBatched(v); }))
      return false;
    ShardingRule rule = ShardingRule::of(op);
    SmallVector<bool> ofSamples(rule.factors.size()), ofWeights(ofSamples);
    for (auto [operand, dims] : llvm::zip(op->getOperands(), rule.operands))
      for (const DimFactors &factors : dims)
        for (int64_t factor : factors)
          (flow.isBatched(operand) ? ofSamples : ofWeights)[factor] = true;
    for (auto [index, factor] : llvm::enumerate(rule.factors))
      if (factor.kind == FactorKind::Reduction &&
          factor.combiner == FactorCombiner::Sum && ofSamples[index] &&
          ofWeights[index])
        return true;
    return false;
  }

  /// Returns `value`, and the values from which it is computed by data
  /// movements, scaling by a number (as in DeepNorm) and additions alone.
  llvm::SetVector<Value> sidesOf(Value value) const {
    llvm::SetVector<Value> sides;
    SmallVector<Value> work = {value};
    while (!work.empty()) {
      Value next = work.pop_back_val();
      if (!flow.isBatched(next) || !sides.insert(next))
        continue;
      Operation *op = next.getDefiningOp();
      bool scales =
          isa_and_nonnull<arith::MulFOp, arith::DivFOp>(op) &&
          (isScalar(op->getOperand(0)) || isScalar(op->getOperand(1)));
      if (isMove(op) || scales || isa_and_nonnull<arith::AddFOp>(op))
        work.append(op->operand_begin(), op->operand_end());
    }
    return sides;
  }

  static bool isNorm(Operation *op) {
    return isa_and_nonnull<nn::LayerNormOp, nn::RmsNormOp>(op);
  }

  /// Returns whether a value is a residual stream. Follows the value back
  /// through moves, scaling and normalization to an addition. The value is a
  /// stream if a value on this path has several readers, if the addition adds a
  /// branch, or if an operand of the addition is a stream.
  bool isStream(Value value) const {
    bool readByOthers = false;
    while (Operation *op = value.getDefiningOp()) {
      readByOthers |= !value.hasOneUse();
      Value source = isNorm(op) ? op->getOperand(0) : withWeights(op);
      if (source) {
        value = source;
        continue;
      }
      if (!isa<arith::AddFOp>(op))
        return false;
      return readByOthers || joins.contains(op) ||
             isStream(op->getOperand(0)) || isStream(op->getOperand(1));
    }
    return false;
  }

  /// Whether operand `side` of an addition is a branch: it is computed, with a
  /// contraction, from the residual stream, which is the other operand or one
  /// of the terms of that operand. Records the value of the stream at which the
  /// branch begins.
  bool isBranch(arith::AddFOp add, unsigned side) {
    Value term = add->getOperand(side), other = add->getOperand(1 - side);
    if (!flow.isBatched(term) || !flow.isBatched(other) ||
        !readByContractions.contains(add.getResult()) || isStream(term))
      return false;
    llvm::SetVector<Value> streams = sidesOf(other);
    // The values that remain to be visited, from the end of the branch
    // backwards. The flag is true if there is a contraction on the path from
    // the value to the end of the branch.
    llvm::DenseSet<Value> seen[2];
    SmallVector<std::pair<Value, bool>> work = {{term, false}};
    bool found = false;
    while (!work.empty()) {
      auto [value, contracted] = work.pop_back_val();
      if (!flow.isBatched(value) || !seen[contracted].insert(value).second)
        continue;
      if (contracted && streams.contains(value)) {
        begins.insert(value);
        found = true;
        continue;
      }
      Operation *op = value.getDefiningOp();
      // The walk stops at additions that add another branch: values before such
      // an addition belong to that branch.
      if (!op || joins.contains(op))
        continue;
      bool passed = contracted || contracts(op);
      for (Value operand : op->getOperands())
        work.push_back({operand, passed});
    }
    return found;
  }

  bool contracts(Operation *op) {
    auto [it, isNew] = contractions.try_emplace(op, false);
    if (isNew)
      it->second = isContraction(op);
    return it->second;
  }

  /// A gather of rows from a table that does not depend on samples, by integers
  /// that are not computed from floats.
  bool isLookup(Operation *op) const {
    auto gather = dyn_cast<nn::GatherOp>(op);
    if (!gather || !isOfFloats(gather.getTable()) ||
        flow.isBatched(gather.getTable()))
      return false;
    llvm::DenseSet<Value> seen;
    SmallVector<Value> work = {gather.getIndices()};
    while (!work.empty()) {
      Value value = work.pop_back_val();
      if (!seen.insert(value).second)
        continue;
      if (isOfFloats(value))
        return false;
      if (Operation *op = value.getDefiningOp())
        work.append(op->operand_begin(), op->operand_end());
    }
    return true;
  }

  bool isEmbedding(Operation *op) {
    return llvm::any_of(op->getResults(),
                        [&](Value result) { return isEmbedding(result); });
  }

  /// Whether a value consists of table rows that samples choose, or of sums of
  /// such rows.
  bool isEmbedding(Value value) {
    Operation *op = value.getDefiningOp();
    if (!op || !flow.isBatched(value))
      return false;
    if (auto known = embeddings.find(value); known != embeddings.end())
      return known->second;
    bool is = isLookup(op);
    if (Value source = withWeights(op))
      is = isEmbedding(source);
    else if (contracts(op)) // a factorized table that has no other reader
      is = llvm::all_of(op->getOperands(), [&](Value operand) {
        return !flow.isBatched(operand) ||
               (operand.hasOneUse() && isEmbedding(operand));
      });
    else if (isa<arith::AddFOp>(op))
      is = isEmbedding(op->getOperand(0)) && isEmbedding(op->getOperand(1));
    return embeddings[value] = is;
  }

  /// Returns whether a residual stream begins with this embedding, possibly
  /// after a normalization or a projection. The search does not continue past
  /// another embedding that is computed from this one, such as a sum of
  /// embeddings. If the stream begins there, only that other embedding begins
  /// the stream.
  bool beginsStream(Value embedding) {
    llvm::DenseSet<Value> seen;
    SmallVector<Value> work = {embedding};
    while (!work.empty()) {
      Value value = work.pop_back_val();
      if (!seen.insert(value).second)
        continue;
      if (begins.contains(value))
        return true;
      for (Operation *user : value.getUsers()) {
        bool goesOn = (isNorm(user) && user->getOperand(0) == value) ||
                      withWeights(user) == value || contracts(user);
        if (goesOn && !isEmbedding(user->getResult(0)))
          work.push_back(user->getResult(0));
      }
    }
    return false;
  }

  Block &body;
  const nn::BatchFlow &flow;
  llvm::MapVector<Value, SmallVector<OpOperand *>> places;
  llvm::DenseSet<Operation *> joins; ///< sums that a branch joins
  llvm::DenseSet<Value> readByContractions;
  llvm::DenseSet<Value> begins; ///< the streams that branches are computed from
  llvm::DenseMap<Operation *, bool> contractions;
  llvm::DenseMap<Value, bool> embeddings;
};

} // namespace

SmallVector<DropoutPlace>
cleave::autodiff::findDropoutPlaces(func::FuncOp func,
                                    const nn::BatchFlow &flow) {
  return Places(func, flow).find();
}
