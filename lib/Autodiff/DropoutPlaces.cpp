#include "DropoutPlaces.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/ShardingRule.h"
#include "cleave/Support/ValueUtils.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::autodiff;

namespace {

bool isOfFloats(Value value) {
  return isa<FloatType>(typeOf(value).getElementType());
}

/// Returns whether the operation only transposes, reshapes, converts (to
/// another float type) or saves its operand.
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
  /// Finds the values on which a later contraction with a weight depends.
  /// Losses and predictions are not among them.
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

  /// Returns whether all elements of the value are known to be equal.
  static bool isScalar(Value value) {
    if (auto broadcast = value.getDefiningOp<nn::BroadcastOp>())
      return broadcast.getInput().getType().getRank() == 0;
    DenseElementsAttr constant;
    return matchPattern(value, m_Constant(&constant)) && constant.isSplat();
  }

  /// Returns the operand that depends on samples if the operation only
  /// transposes, reshapes or rounds it, or combines it by addition,
  /// subtraction, multiplication or division with an operand that does not
  /// depend on samples. Returns null for other operations.
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

  /// Returns whether the operation is a contraction with a weight: it sums
  /// products of an operand that depends on samples and an operand that does
  /// not, such as a linear layer or a convolution.
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

  /// Returns `value`, and the values from which it is computed by additions,
  /// data movement and scaling by a number (as in DeepNorm) alone.
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

  /// Returns whether a value is a residual stream. Searches backwards from the
  /// value through data movement, operations with weights that are elementwise,
  /// and normalization, until it finds an addition. The value is a stream if a
  /// value on this path has several readers, if the addition adds a branch, or
  /// if an operand of the addition is a stream.
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

  /// Returns whether operand `side` of an addition is a branch (see
  /// findDropoutPlaces): it is computed, with a contraction, from the residual
  /// stream, which is the other operand or one of the values that were added up
  /// to give it. Records the value of the stream from which the branch is
  /// computed.
  bool isBranch(arith::AddFOp add, unsigned side) {
    Value term = add->getOperand(side), other = add->getOperand(1 - side);
    if (!flow.isBatched(term) || !flow.isBatched(other) ||
        !readByContractions.contains(add.getResult()) || isStream(term))
      return false;
    llvm::SetVector<Value> streams = sidesOf(other);
    // `work` has the values that the backward search from `term`, the possible
    // branch, has still to visit. The flag of a value says whether there is a
    // contraction with a weight on the path from the value to `term`.
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
      // The search does not continue past an addition that is already known to
      // add a branch: its operands are computed by earlier layers, not by the
      // layer that computes `term`.
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

  /// Returns whether the operation gathers rows of a table of weights, which do
  /// not depend on samples, by integers that are not computed from floats.
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

  /// Returns whether a value is an embedding (see findDropoutPlaces): rows that
  /// the samples select from a table of weights, or a sum of such rows.
  bool isEmbedding(Value value) {
    Operation *op = value.getDefiningOp();
    if (!op || !flow.isBatched(value))
      return false;
    if (auto known = embeddings.find(value); known != embeddings.end())
      return known->second;
    bool is = isLookup(op);
    if (Value source = withWeights(op))
      is = isEmbedding(source);
    // A factorized embedding: the contraction is the only reader of its rows.
    else if (contracts(op))
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
  /// another embedding that is computed from this one, such as the sum of the
  /// token and the position embedding, because the stream then begins with that
  /// one.
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
  llvm::DenseSet<Operation *> joins; ///< additions of a branch to a stream
  llvm::DenseSet<Value> readByContractions;
  llvm::DenseSet<Value> begins; ///< values of streams that branches read
  llvm::DenseMap<Operation *, bool> contractions;
  llvm::DenseMap<Value, bool> embeddings;
};

} // namespace

SmallVector<DropoutPlace>
cleave::autodiff::findDropoutPlaces(func::FuncOp func,
                                    const nn::BatchFlow &flow) {
  return Places(func, flow).find();
}
