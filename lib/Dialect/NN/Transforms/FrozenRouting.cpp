// Routers whose choice an export has replaced by constants.
//
// A tracer that meets indices as numbers writes those of its sample: the file
// then holds the largest scores, but nothing asks whose they are, and a score
// goes to the row, or counts where a mask says so, that the sample had.

#include "FrozenRouting.h"
#include "Dataflow.h"

using namespace mlir;

namespace cleave::nn {

namespace {

/// Known when the file was written, and not everywhere the same.
bool isFixed(Value value) {
  for (;;) {
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      auto function = cast<func::FuncOp>(argument.getOwner()->getParentOp());
      auto role = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(),
                                                        kRoleAttr);
      return role && role.getValue() == "constant";
    }
    Operation *op = value.getDefiningOp();
    if (isa<arith::ConstantOp>(op))
      return !splatOf(value);
    if (!isa<BroadcastOp, ReshapeOp, TransposeOp, arith::UIToFPOp,
             arith::ExtUIOp>(op))
      return false;
    value = op->getOperand(0);
  }
}

/// The largest scores of each row, where nothing reads whose they are.
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

/// What reads them at fixed places, or null. A dimension of slots, the last one
/// of `scores` itself, may be cut.
Operation *fixedReader(Value scores, bool hasSlots) {
  SmallVector<Value> values = {scores};
  llvm::DenseSet<Value> seen;
  for (size_t i = 0; i < values.size(); ++i)
    for (Operation *user : values[i].getUsers()) {
      if (auto gather = dyn_cast<GatherOp>(user)) {
        if (gather.getTable() == values[i] && isFixed(gather.getIndices()))
          return user;
        continue;
      }
      if (auto slice = dyn_cast<SliceOp>(user)) {
        int64_t rank = rankOf(values[i]);
        for (int64_t dim = 0; dim < rank; ++dim)
          if (slice.getSizes()[dim] != shapeOf(values[i])[dim] &&
              !(hasSlots && values[i] == scores && dim == rank - 1))
            return user;
      } else if (isa<arith::MulFOp, arith::SelectOp>(user)) {
        if (llvm::any_of(user->getOperands(), isFixed))
          return user;
      }
      // Where they meet other data they have done their work.
      bool follows =
          isElementwise(user)
              ? llvm::all_of(user->getOperands(),
                             [&](Value operand) {
                               return operand == scores ||
                                      seen.contains(operand) ||
                                      splatOf(operand);
                             })
              : isa<BroadcastOp, ReshapeOp, TransposeOp, ReduceOp, SliceOp>(
                    user);
      if (!follows)
        continue;
      if (seen.insert(user->getResult(0)).second)
        values.push_back(user->getResult(0));
    }
  return nullptr;
}

} // namespace

LogicalResult checkRouting(func::FuncOp function) {
  for (Operation &op : function.front()) {
    Value scores = largestScores(op);
    if (!scores || !fixedReader(scores, isa<TopKOp>(op)))
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
