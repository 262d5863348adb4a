// Finds routers whose choice of experts became a constant in the export. If a
// tracer treats indices as plain numbers, it stores the indices that it
// computed for its example input. The graph then still computes the largest
// router scores, but nothing reads their indices. Instead, it multiplies the
// scores at the stored indices with the outputs of the experts, or masks the
// scores at these indices. Scores count as those of a router only if they are
// computed with a matrix of the model and are multiplied with other data.

#include "FrozenRouting.h"
#include "Dataflow.h"

#include "cleave/Dialect/NN/IR/Ports.h"

using namespace mlir;

namespace cleave::nn {

namespace {

/// Returns whether the value is a constant with elements that are not all
/// equal: an argument that is a constant in the model file, or an
/// arith.constant that is no splat.
bool isFixed(Value value) {
  for (;;) {
    if (auto argument = dyn_cast<BlockArgument>(value))
      return roleOf(argument) == Role::Constant;
    Operation *op = value.getDefiningOp();
    if (isa<arith::ConstantOp>(op))
      return !splatOf(value);
    if (!isa<BroadcastOp, ReshapeOp, TransposeOp, arith::UIToFPOp,
             arith::ExtUIOp>(op))
      return false;
    value = op->getOperand(0);
  }
}

/// Returns the result of `op` that holds the largest scores of each row, if
/// nothing reads the indices of these scores; otherwise null.
Value largestScores(Operation &op) {
  if (auto top = dyn_cast<TopKOp>(op))
    return top.getIndices().use_empty() ? top.getValues() : Value();
  auto reduce = dyn_cast<ReduceOp>(op);
  if (!reduce || reduce.getCombiner() != Combiner::Max)
    return nullptr;
  Operation *scores = reduce.getInput().getDefiningOp();
  return isa_and_present<SoftmaxOp, SigmoidOp>(scores) ? reduce.getResult()
                                                       : Value();
}

/// Returns whether a value is computed from parameters alone, such as a matrix
/// of the model whose rows are scaled.
bool isLearned(Value matrix) {
  bool hasParameter = false;
  SmallVector<Value> values = {matrix};
  llvm::DenseSet<Operation *> seen;
  while (!values.empty()) {
    Value value = values.pop_back_val();
    Operation *op = value.getDefiningOp();
    if (!op) {
      std::optional<Role> role = roleOf(cast<BlockArgument>(value));
      if (!isOneOf(role, {Role::Parameter, Role::Constant}))
        return false;
      hasParameter |= role == Role::Parameter;
    } else if (seen.insert(op).second) {
      llvm::append_range(values, op->getOperands());
    }
  }
  return hasParameter;
}

/// Returns whether the value depends on a product with a parameter. Scores
/// without such a product were not learned, so they belong to no router.
bool followsFromProduct(Value value) {
  SmallVector<Value> values = {value};
  llvm::DenseSet<Operation *> seen;
  while (!values.empty()) {
    Operation *op = values.pop_back_val().getDefiningOp();
    if (!op || !seen.insert(op).second)
      continue;
    if (isa<EinsumOp, ConvOp>(op) && llvm::any_of(op->getOperands(), isLearned))
      return true;
    llvm::append_range(values, op->getOperands());
  }
  return false;
}

/// Follows router scores through their readers until they are combined with
/// other data. Finds the values that have scores at fixed positions: scores
/// that a gather, a slice or a mask selects by constants, instead of by indices
/// that the program computes.
class Followed {
public:
  /// If `hasSlots` is true, the last dimension of `scores` enumerates the
  /// experts that a token has chosen. A slice of `scores` along this dimension
  /// does not count as reading scores at fixed positions.
  Followed(Value scores, bool hasSlots) : scores(scores), hasSlots(hasSlots) {
    add(scores, false);
    while (!values.empty()) {
      Value value = values.pop_back_val();
      for (Operation *user : value.getUsers())
        follow(value, user);
    }
  }

  /// Returns whether router scores that constants select (scores at fixed
  /// positions) are multiplied with other data, that is, with values that are
  /// neither scores nor constants.
  bool weighFixedly() const {
    for (auto [value, isPlaced] : atFixed)
      if (isPlaced)
        for (Operation *user : value.getUsers())
          if (isa<arith::MulFOp, EinsumOp>(user) &&
              llvm::any_of(user->getOperands(), [&](Value operand) {
                return !isOwn(operand) && !isFixed(operand);
              }))
            return true;
    return false;
  }

private:
  bool isOwn(Value value) const {
    return atFixed.contains(value) || splatOf(value).has_value();
  }

  void add(Value value, bool isPlaced) {
    auto [entry, isNew] = atFixed.try_emplace(value, isPlaced);
    if (!isNew && (entry->second || !isPlaced))
      return;
    entry->second = isPlaced;
    values.push_back(value);
  }

  /// Returns whether a slice selects some of the elements of a dimension by
  /// constants. Slices of the scores along the dimension of a token's chosen
  /// experts are allowed.
  bool cuts(SliceOp slice) const {
    ArrayRef<int64_t> shape = shapeOf(slice.getInput());
    for (auto [dim, size] : llvm::enumerate(slice.getSizes()))
      if (size != shape[dim] &&
          !(hasSlots && slice.getInput() == scores && dim + 1 == shape.size()))
        return true;
    return false;
  }

  void follow(Value value, Operation *user) {
    bool isPlaced = llvm::any_of(user->getOperands(), [&](Value operand) {
      return atFixed.lookup(operand);
    });
    if (auto gather = dyn_cast<GatherOp>(user)) {
      if (gather.getTable() == value && isFixed(gather.getIndices()))
        add(gather.getResult(), true);
    } else if (auto slice = dyn_cast<SliceOp>(user)) {
      add(slice.getResult(), isPlaced || cuts(slice));
    } else if (isa<BroadcastOp, ReshapeOp, TransposeOp, ReduceOp>(user)) {
      add(user->getResult(0), isPlaced);
    } else if (isElementwise(user) || isa<EinsumOp>(user)) {
      // An operand that does not come from the scores may be a constant mask
      // that selects some of the scores.
      bool mayMask = isa<arith::MulFOp, arith::SelectOp, EinsumOp>(user);
      bool isMasked = false;
      for (Value operand : user->getOperands())
        if (!isOwn(operand)) {
          if (!mayMask || !isFixed(operand))
            return;
          isMasked = true;
        }
      add(user->getResult(0), isPlaced || isMasked);
    }
  }

  Value scores;
  bool hasSlots;
  llvm::DenseMap<Value, bool> atFixed;
  SmallVector<Value> values;
};

} // namespace

LogicalResult checkRouting(func::FuncOp function) {
  for (Operation &op : function.front()) {
    Value scores = largestScores(op);
    if (!scores || !Followed(scores, isa<TopKOp>(op)).weighFixedly() ||
        !followsFromProduct(op.getOperand(0)))
      continue;
    return op.emitError("finds the largest scores, but nothing reads whose "
                        "they are: they are used at places that the file "
                        "fixes. Where this is a router, tracing has kept the "
                        "choice that it made for its sample; export the model "
                        "so that indices are computed: with a loop over all "
                        "experts, or with torch.export");
  }
  return success();
}

} // namespace cleave::nn
