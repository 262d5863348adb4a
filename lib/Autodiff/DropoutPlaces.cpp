#include "DropoutPlaces.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/ShardingRule.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
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
    for (auto add : body.getOps<arith::AddFOp>())
      for (unsigned side : {0, 1})
        if (isBranch(add->getOperand(side), add->getOperand(1 - side)))
          place(add->getOperand(side)).push_back(&add->getOpOperand(side));
    for (Operation &op : body)
      for (Value value : op.getResults())
        if (isEmbedding(value) && beginsStream(value))
          for (OpOperand &use : value.getUses())
            if (!isEmbedding(use.getOwner()))
              place(value).push_back(&use);
    SmallVector<DropoutPlace> found;
    for (auto &[value, uses] : places)
      if (flow.isBatched(value))
        found.push_back({value, std::move(uses)});
    llvm::sort(found, [](const DropoutPlace &a, const DropoutPlace &b) {
      return a.value.getDefiningOp()->isBeforeInBlock(b.value.getDefiningOp());
    });
    return found;
  }

private:
  SmallVector<OpOperand *> &place(Value value) { return places[value]; }

  /// Repeats or scales by, or adds, what samples have no part in. Returns the
  /// operand that they have a part in; null: something else.
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

  /// Sums products of something of samples with something that they have no
  /// part in: a linear map of rows, a convolution.
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

  /// A value, what it is the moved or scaled form of, and the addends of that.
  llvm::SetVector<Value> sidesOf(Value value) const {
    llvm::SetVector<Value> sides;
    SmallVector<Value> work = {value};
    while (!work.empty()) {
      Value next = work.pop_back_val();
      if (!flow.isBatched(next) || !sides.insert(next))
        continue;
      Operation *op = next.getDefiningOp();
      if (Value source = withWeights(op))
        work.push_back(source);
      else if (isa_and_nonnull<arith::AddFOp>(op))
        work.append({op->getOperand(0), op->getOperand(1)});
    }
    return sides;
  }

  /// Whether `addend` is computed from `other`, or an addend of it, by a
  /// contraction; notes what the stream is there.
  bool isBranch(Value addend, Value other) {
    if (!flow.isBatched(addend) || !flow.isBatched(other))
      return false;
    // What both sides share, as in x + (x + f(x)), is the stream of another
    // sum.
    llvm::SetVector<Value> streams = sidesOf(other), own = sidesOf(addend);
    // Values, and whether a contraction lies between them and the addend.
    llvm::DenseSet<Value> seen[2];
    SmallVector<std::pair<Value, bool>> work = {{addend, false}};
    bool found = false;
    while (!work.empty()) {
      auto [value, contracted] = work.pop_back_val();
      if (!flow.isBatched(value) || !seen[contracted].insert(value).second)
        continue;
      if (contracted && streams.contains(value)) {
        if (!own.contains(value)) {
          begins.insert(value);
          found = true;
        }
        continue;
      }
      if (Operation *op = value.getDefiningOp()) {
        bool passed = contracted || contracts(op);
        for (Value operand : op->getOperands())
          work.push_back({operand, passed});
      }
    }
    return found;
  }

  bool contracts(Operation *op) {
    auto [it, isNew] = contractions.try_emplace(op, false);
    if (isNew)
      it->second = isContraction(op);
    return it->second;
  }

  /// Rows of a table that samples have no part in, chosen by integers that no
  /// floats were part of.
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

  /// Rows of tables that samples choose, and their sums.
  bool isEmbedding(Value value) {
    Operation *op = value.getDefiningOp();
    if (!op || !flow.isBatched(value))
      return false;
    if (auto known = embeddings.find(value); known != embeddings.end())
      return known->second;
    bool is = isLookup(op);
    if (Value source = withWeights(op))
      is = isEmbedding(source);
    else if (isa<arith::AddFOp>(op))
      is = isEmbedding(op->getOperand(0)) && isEmbedding(op->getOperand(1));
    return embeddings[value] = is;
  }

  /// Whether a stream begins with an embedding, and not with a sum that it is a
  /// part of.
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
        bool isNorm = isa<nn::LayerNormOp, nn::RmsNormOp>(user) &&
                      user->getOperand(0) == value;
        if ((isNorm || withWeights(user) == value) &&
            !isEmbedding(user->getResult(0)))
          work.push_back(user->getResult(0));
      }
    }
    return false;
  }

  Block &body;
  const nn::BatchFlow &flow;
  llvm::MapVector<Value, SmallVector<OpOperand *>> places;
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
