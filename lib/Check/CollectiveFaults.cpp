// Injected faults of collectives: a collective is omitted, scaled or runs over
// the wrong ranks, or a term is added before the sum over ranks instead of
// after it.

#include "FaultPlaces.h"

#include "cleave/Interfaces/StageAttrs.h"
#include "cleave/Support/ValueUtils.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::check;

namespace {

bool isSumOverRanks(Operation *op) {
  dist::ReduceKind kind;
  if (auto reduce = dyn_cast<dist::AllReduceOp>(op))
    kind = reduce.getKind();
  else if (auto scatter = dyn_cast<dist::ReduceScatterOp>(op))
    kind = scatter.getKind();
  else
    return false;
  auto collective = cast<dist::CollectiveOpInterface>(op);
  dist::MeshAttr mesh = meshOf(op, collective.getMeshAttr());
  return kind == dist::ReduceKind::Sum && mesh &&
         dist::axesSize(mesh, collective.getAxes().getAxes()) > 1;
}

dist::AxisListAttr axisList(ArrayRef<dist::AxisRefAttr> axes) {
  return dist::AxisListAttr::get(axes.front().getContext(), axes);
}

/// Replaces every result of the collective by the rank's own operand, as if the
/// collective had not run.
void leaveOut(Operation *op) {
  OpBuilder builder(op);
  for (auto [index, result] : llvm::enumerate(op->getResults())) {
    Value own = op->getOperand(index);
    if (auto scatter = dyn_cast<dist::ReduceScatterOp>(op))
      own = dist::SliceOp::create(builder, op->getLoc(), result.getType(), own,
                                  scatter.getDims()[index], scatter.getMesh(),
                                  scatter.getAxes());
    result.replaceAllUsesWith(own);
  }
  op->erase();
}

/// Multiplies every result by a factor.
void scaleResults(Operation *op, double factor) {
  OpBuilder builder(op->getContext());
  builder.setInsertionPointAfter(op);
  for (Value result : op->getResults()) {
    auto type = typeOf(result);
    if (!isa<FloatType>(type.getElementType()))
      continue;
    Value by = nn::createSplat(builder, op->getLoc(), type, factor);
    auto scaled = arith::MulFOp::create(builder, op->getLoc(), result, by);
    result.replaceAllUsesExcept(scaled, scaled);
  }
}

/// Changes all_reduce(x) + b to all_reduce(x + b).
void addBeforeSum(Operation *sum, unsigned index, Operation *add, Value other) {
  OpBuilder builder(add);
  auto reduce = cast<dist::AllReduceOp>(sum);
  Value before = arith::AddFOp::create(builder, add->getLoc(),
                                       sum->getOperand(index), other);
  auto again = dist::AllReduceOp::create(
      builder, sum->getLoc(), TypeRange{before.getType()}, reduce.getKind(),
      ValueRange{before}, reduce.getMesh(), reduce.getAxes(),
      reduce.getPurpose());
  add->getResult(0).replaceAllUsesWith(again->getResult(0));
  add->erase();
}

} // namespace

Places check::dropCollective(ModuleOp module) {
  Places places;
  walkChecked(module, [&](Operation *op) {
    if (isSumOverRanks(op))
      places.push_back({op, [op] { leaveOut(op); }});
  });
  return places;
}

Places check::sumForMean(ModuleOp module) {
  Places gradients, losses;
  walkChecked(module, [&](Operation *op) {
    if (!isSumOverRanks(op))
      return;
    auto collective = cast<dist::CollectiveOpInterface>(op);
    int64_t size = dist::axesSize(meshOf(op, collective.getMeshAttr()),
                                  collective.getAxes().getAxes());
    Place place{op, [op, size] { scaleResults(op, size); }};
    if (collective.getPurpose() == dist::Purpose::Gradient)
      gradients.push_back(place);
    if (collective.getPurpose() == dist::Purpose::Loss)
      losses.push_back(place);
  });
  return gradients.empty() ? losses : gradients;
}

Places check::wrongGroup(ModuleOp module) {
  Places places;
  walkChecked(module, [&](Operation *op) {
    auto collective = dyn_cast<dist::CollectiveOpInterface>(op);
    // The group of an exchange cannot be changed, because it follows from the
    // exchange's shardings.
    if (!collective || isa<dist::ExchangeOp>(op))
      return;
    dist::MeshAttr mesh = meshOf(op, collective.getMeshAttr());
    int64_t size = dist::axesSize(mesh, collective.getAxes().getAxes());
    if (size < 2)
      return;
    // The group of an all-reduce may be replaced by one of a different size,
    // because the shapes of operands and results do not depend on it.
    bool anySize = isa<dist::AllReduceOp>(op);
    SmallVector<dist::AxisRefAttr> others =
        otherAxes(mesh, collective.getAxes(), anySize ? 0 : size);
    if (!others.empty())
      places.push_back({op, [op, axis = others.front()] {
                          op->setAttr("axes", axisList(axis));
                        }});
  });
  return places;
}

/// Returns whether the value is the total over earlier pipeline stages that a
/// stage gets as an argument. In the first stage it is zero, so adding it twice
/// may change nothing.
static bool isSumOfStages(Value value) {
  auto argument = dyn_cast<BlockArgument>(value);
  if (!argument)
    return false;
  auto func = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
  return func && pipe::slotOf(func.getArgAttrDict(argument.getArgNumber())) ==
                     kUpdateSlot;
}

Places check::biasTwice(ModuleOp module) {
  Places places;
  walkChecked(module, [&](Operation *op) {
    if (!isSumOverRanks(op) || !isa<dist::AllReduceOp>(op))
      return;
    for (OpResult sum : op->getResults())
      for (Operation *user : sum.getUsers()) {
        auto add = dyn_cast<arith::AddFOp>(user);
        if (!add || add.getLhs() == add.getRhs())
          continue;
        Value other = add.getLhs() == sum ? add.getRhs() : add.getLhs();
        if (isSumOfStages(other))
          continue;
        places.push_back({op, [op, add, other, index = sum.getResultNumber()] {
                            addBeforeSum(op, index, add, other);
                          }});
      }
  });
  return places;
}

Places check::normTwice(ModuleOp module) {
  Places places;
  walkChecked(module, [&](Operation *op) {
    if (!isSumOverRanks(op))
      return;
    auto collective = cast<dist::CollectiveOpInterface>(op);
    if (collective.getPurpose() != dist::Purpose::Norm)
      return;
    places.push_back(
        {op, [op, collective]() mutable {
           // The first rank of each group contributes its operand twice.
           OpBuilder builder(op);
           Location loc = op->getLoc();
           auto count = RankedTensorType::get({}, builder.getI64Type());
           Value place = dist::AxisIndexOp::create(builder, loc, count,
                                                   collective.getMeshAttr(),
                                                   collective.getAxes());
           Value first =
               arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq,
                                     place, splatBefore(op, count, 0));
           for (OpOperand &operand : op->getOpOperands()) {
             auto type = typeOf(operand.get());
             auto scalar = RankedTensorType::get({}, type.getElementType());
             Value times = arith::SelectOp::create(builder, loc, first,
                                                   splatBefore(op, scalar, 2),
                                                   splatBefore(op, scalar, 1));
             if (type.getRank() > 0)
               times = nn::BroadcastOp::create(builder, loc, type, times,
                                               ArrayRef<int64_t>());
             operand.set(
                 arith::MulFOp::create(builder, loc, operand.get(), times));
           }
         }});
  });
  return places;
}
