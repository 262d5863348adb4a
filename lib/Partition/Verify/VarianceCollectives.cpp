//===- VarianceCollectives.cpp - states through collectives ---------------===//
//
// Computes how collectives change the states of values over the axes of their
// group. Slices and similar operations, which turn a replicated value into a
// part of it, are included.
//
//===----------------------------------------------------------------------===//

#include "cleave/Partition/Verify/Variance.h"

#include "cleave/Support/ValueUtils.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

namespace {

/// What a collective does to one operand, over each axis of its group.
struct Effect {
  std::optional<ReduceKind> reduce;
  std::optional<int64_t> from, to; // dimensions that are gathered, or split
  bool varies = false;             // the result is neither whole nor tiles
};

Effect effectOf(Operation *op, unsigned index) {
  Effect effect;
  if (auto all = dyn_cast<AllReduceOp>(op))
    effect.reduce = all.getKind();
  if (auto scatter = dyn_cast<ReduceScatterOp>(op)) {
    effect.reduce = scatter.getKind();
    effect.to = scatter.getDims()[index];
  }
  if (auto gather = dyn_cast<AllGatherOp>(op))
    effect.from = gather.getDims()[index];
  if (auto exchange = dyn_cast<AllToAllOp>(op)) {
    effect.from = exchange.getConcatDims()[index];
    effect.to = exchange.getSplitDims()[index];
  }
  if (auto window = dyn_cast<WindowOp>(op)) {
    // If all ranks read the same window of a dist.window, it acts as a gather.
    // If the windows are adjacent, its result consists of tiles again. In other
    // cases the windows overlap.
    effect.from = window.getDim();
    int64_t length = typeOf(op->getResult(index)).getDimSize(window.getDim());
    if (std::abs(int64_t(window.getStep())) ==
        length * std::abs(int64_t(window.getStride())))
      effect.to = window.getDim();
    else
      effect.varies = window.getStep() != 0;
  }
  return effect;
}

} // namespace

LogicalResult Variance::visitCollective(Operation *op, ArrayRef<Axis> axes) {
  for (auto [index, result] : llvm::enumerate(op->getResults())) {
    Value operand = op->getOperand(index);
    State state = states[operand];
    if (isa<CollectivePermuteOp>(op)) {
      permute(state, setOf(axes));
      states[result] = std::move(state);
      continue;
    }
    if (auto exchange = dyn_cast<ExchangeOp>(op)) {
      if (failed(visitExchange(exchange, index, setOf(axes), state)))
        return failure();
      states[result] = std::move(state);
      continue;
    }
    Effect effect = effectOf(op, index);
    for (Axis axis : axes) {
      const AxisState &at = state[axis];
      // Reducing by maximum or minimum is allowed if all ranks have the same
      // value, since the result is that value.
      bool repeats = at.kind == AxisState::Invariant && effect.reduce &&
                     *effect.reduce != ReduceKind::Sum;
      if (effect.reduce && !at.mayBePartial(*effect.reduce) && !repeats &&
          at.kind != AxisState::Zero && at.kind != AxisState::Varying &&
          !at.maybe)
        return op->emitOpError("reduces operand ")
               << index << " of type " << operand.getType() << " by "
               << stringifyReduceKind(*effect.reduce) << " over axis "
               << name(axis) << ", over which it is " << at.str();
      if (effect.from && !satisfies(at, AxisState::split(*effect.from)))
        return op->emitOpError("gathers dimension ")
               << *effect.from << " of operand " << index << " of type "
               << operand.getType() << " over axis " << name(axis)
               << ", over which it is " << at.str();
    }
    if (effect.from &&
        failed(checkGathered(op, index, axes, *effect.from, state)))
      return failure();
    for (Axis axis : axes)
      state[axis] = AxisState::of(effect.varies ? AxisState::Varying
                                                : AxisState::Invariant);
    forgetOrder(state, setOf(axes));
    if (effect.to)
      splitFurther(state, axes, *effect.to);
    states[result] = std::move(state);
  }
  return success();
}

/// Checks the operand of an exchange against the declared source layout. The
/// result then has the declared target layout.
LogicalResult Variance::visitExchange(ExchangeOp op, unsigned index,
                                      AxisSet over, State &state) const {
  State from = declared(cast<ShardingAttr>(op.getFrom()[index]));
  State to = declared(cast<ShardingAttr>(op.getTo()[index]));
  std::string wrong = mismatch(state, from, "its `from`");
  if (!wrong.empty())
    return op->emitOpError("operand ") << index << " " << wrong;
  forgetOrder(state, over);
  for (unsigned axis = 0; axis < mesh.count(); ++axis) {
    if (contains(over, axis))
      state[axis] = to[axis];
    else if (state[axis].kind == AxisState::Split)
      state[axis].majorTo = to[axis].majorTo;
  }
  return success();
}

/// Checks the order of axes for a gather along `dim`, which concatenates tiles
/// in the order of `axes`, major first. Axes by which the dimension remains
/// split must be major to all of these axes.
LogicalResult Variance::checkGathered(Operation *op, unsigned index,
                                      ArrayRef<Axis> axes, int64_t dim,
                                      const State &state) const {
  auto wrong = [&](Axis major, Axis minor) {
    return op->emitOpError("gathers dimension ")
           << dim << " of operand " << index << " of type "
           << op->getOperand(index).getType() << " over axis " << name(major)
           << ", which splits it before axis " << name(minor)
           << (llvm::is_contained(axes, minor)
                   ? ", in the other order"
                   : ", which goes on splitting it");
  };
  AxisSet group = setOf(axes);
  for (auto [place, axis] : llvm::enumerate(axes)) {
    for (Axis earlier : axes.take_front(place))
      if (contains(state[axis].majorTo, earlier))
        return wrong(axis, earlier);
    for (Axis minor : listOf(state[axis].majorTo & ~group))
      if (state[minor].isSurelySplitOn(dim))
        return wrong(axis, minor);
  }
  return success();
}

/// Records that `axes`, which did not split the tensor before, now split `dim`
/// further. They are minor to the axes that split it already, and ordered major
/// first.
void Variance::splitFurther(State &state, ArrayRef<Axis> axes,
                            int64_t dim) const {
  AxisSet all = setOf(axes), rest = all;
  for (unsigned axis = 0; axis < mesh.count(); ++axis)
    if (!contains(all, axis) && state[axis].isSurelySplitOn(dim))
      state[axis].majorTo |= all;
  for (Axis axis : axes) {
    rest &= ~(AxisSet(1) << axis);
    state[axis] = AxisState::split(dim);
    state[axis].majorTo = rest;
  }
}

void Variance::forgetOrder(State &state, AxisSet axes) {
  for (auto [axis, at] : llvm::enumerate(state))
    at.majorTo = contains(axes, Axis(axis)) ? 0 : at.majorTo & ~axes;
}

/// Records that tiles have moved between ranks: each of the axes may now split
/// any dimension that one of them split before.
void Variance::permute(State &state, AxisSet over) const {
  AxisState all = AxisState::of(AxisState::Split);
  for (Axis axis : listOf(over)) {
    if (state[axis].kind != AxisState::Split)
      all.kind = AxisState::Varying;
    all.dims |= state[axis].dims;
  }
  Axes axes = listOf(over);
  // If there are two axes and each splits one known dimension, the only
  // possible change is that they swap these dimensions.
  bool swaps = axes.size() == 2 && all.kind == AxisState::Split &&
               llvm::popcount(state[axes[0]].dims) == 1 &&
               llvm::popcount(state[axes[1]].dims) == 1 &&
               llvm::popcount(all.dims) == 2;
  if (swaps)
    std::swap(state[axes[0]], state[axes[1]]);
  else
    for (Axis axis : axes)
      state[axis] = all;
  forgetOrder(state, over);
}

/// Operations that depend on the rank's position.
LogicalResult Variance::visitPlace(Operation *op) {
  Value result = op->getResult(0);
  State state(mesh.count(), AxisState::of(AxisState::Invariant));
  if (op->getNumOperands() == 1)
    state = states[op->getOperand(0)];
  Axes axes = mesh.decompose(op->getAttrOfType<AxisListAttr>("axes").getAxes());
  for (Axis axis : axes) {
    AxisState &at = state[axis];
    bool shared = at.kind == AxisState::Invariant || at.kind == AxisState::Zero;
    if (op->getNumOperands() == 1 && !shared)
      return op->emitOpError("takes a part over axis ")
             << name(axis) << " of a value of type "
             << op->getOperand(0).getType() << " that is " << at.str()
             << " over it";
    at = isa<KeepFirstOp>(op) ? AxisState::partial(ReduceKind::Sum)
                              : AxisState::of(AxisState::Varying);
  }
  if (auto slice = dyn_cast<dist::SliceOp>(op))
    splitFurther(state, axes, slice.getDim());
  states[result] = std::move(state);
  padding.visitPlace(op, axes);
  return success();
}
