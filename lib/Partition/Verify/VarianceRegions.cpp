//===- VarianceRegions.cpp - loops and branches ---------------------------===//
//
// Determines the states of values that loops carry or branches yield. Such a
// value has the same state everywhere in the loop or branch.
//
//===----------------------------------------------------------------------===//

#include "cleave/Partition/Utils/Regions.h"
#include "cleave/Partition/Verify/Variance.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

/// Verifies a loop or branch. The values that it carries must match their
/// declared shardings at the start, where they are yielded, and after the loop.
LogicalResult Variance::visitRegions(Operation *op) {
  if (auto loop = dyn_cast<scf::ForOp>(op); loop && !hasStaticTripCount(loop))
    if (Operation *collective = collectiveIn(op, ~AxisSet(0)))
      return collective->emitOpError(
          "is in a loop whose bounds are no constants: ranks could "
          "disagree on the number of trips");
  auto given = op->getAttrOfType<ArrayAttr>(kShardingAttrName);
  SmallVector<Carried> carried = carriedBy(op);
  if (given && given.size() != carried.size())
    return op->emitOpError("has ")
           << given.size() << " shardings for " << carried.size() << " results";
  AxisSet differs = 0;
  if (auto branch = dyn_cast<scf::IfOp>(op)) {
    const State &condition = states[branch.getCondition()];
    for (unsigned axis = 0; axis < mesh.count(); ++axis)
      if (condition[axis].kind != AxisState::Invariant &&
          condition[axis].kind != AxisState::Zero)
        differs |= AxisSet(1) << axis;
    if (Operation *collective = collectiveIn(op, differs))
      return collective->emitOpError(
          "is under a condition that differs between the ranks of "
          "its group: some would wait for ever");
  }
  for (auto [index, value] : llvm::enumerate(carried)) {
    State want =
        declared(given ? cast<ShardingAttr>(given[index]) : ShardingAttr());
    for (Axis axis : listOf(differs))
      if (want[axis].kind != AxisState::Split)
        return op->emitOpError("result ")
               << index << " is " << want[axis].str() << " over axis "
               << name(axis)
               << " as its sharding says, but the condition differs over it";
    if (value.init &&
        failed(check(op, value.init, want, index, "where it begins")))
      return failure();
    if (value.argument) {
      states[value.argument] = want;
      padding.carry(value.init, value.argument);
    }
    states[value.result] = want;
  }
  if (auto loop = dyn_cast<scf::ForOp>(op))
    states[loop.getInductionVar()] =
        State(mesh.count(), AxisState::of(AxisState::Invariant));
  // The body is visited again if the padding of carried values is known better
  // from the yielded values than from the initial ones.
  for (bool again = true; again;) {
    for (Region &region : op->getRegions())
      if (!region.empty() && failed(visitBlock(region.front())))
        return failure();
    for (auto [index, value] : llvm::enumerate(carried))
      for (Value yielded : value.yielded)
        if (failed(check(op, yielded, states[value.result], index,
                         "where it is yielded")))
          return failure();
    again = false;
    for (const Carried &value : carried) {
      // The result of a branch is the value that its first or its second region
      // yields.
      padding.carry(value.init ? value.init : value.yielded.front(),
                    value.result);
      for (Value yielded : value.yielded)
        if (failed(padding.merge(op, value.result, yielded)))
          return failure();
      again |= value.argument && padding.learn(value.argument, value.result);
    }
  }
  return success();
}

/// Gives the arguments of the region the states of the operands.
void Variance::enterScan(nn::ScanOp scan) {
  for (auto [init, argument] :
       llvm::zip_equal(scan.getInits(), scan.getCarriedArguments())) {
    states[argument] = State(states[init]);
    padding.carry(init, argument);
  }
  for (auto [whole, argument] :
       llvm::zip_equal(scan.getSlices(), scan.getSliceArguments())) {
    State state = states[whole];
    for (AxisState &each : state)
      each.dims >>= 1; // an iteration reads one element along dimension 0
    states[argument] = state;
    padding.slice(whole, argument);
  }
  for (auto [operand, argument] :
       llvm::zip_equal(scan.getCaptures(), scan.getCaptureArguments())) {
    states[argument] = State(states[operand]);
    padding.carry(operand, argument);
  }
}

/// If the yielded value has another state than the carried value, gives this
/// state to the carried value, provided that the initial value satisfies it,
/// too. For example, initial zeros also count as tiles. Returns whether a state
/// changed, so that the region must be visited again.
bool Variance::widenCarried(nn::ScanOp scan) {
  bool changed = false;
  for (auto [init, argument, yielded] :
       llvm::zip_equal(scan.getInits(), scan.getCarriedArguments(),
                       scan.getYieldedCarries())) {
    State known = states[argument];
    for (unsigned axis = 0; axis < mesh.count(); ++axis) {
      const AxisState &next = states[yielded][axis];
      if (satisfies(next, known[axis]) || next.kind == known[axis].kind ||
          !satisfies(states[init][axis], next))
        continue;
      known[axis] = next;
      changed = true;
    }
    states[argument] = known;
  }
  return changed;
}

/// Verifies a scan by the operations of its region. (An axis may split
/// different factors of the whole loop: the region may have parts that do not
/// depend on each other.)
LogicalResult Variance::visitScan(nn::ScanOp scan) {
  enterScan(scan);
  // A state changes at most once per carried value and axis.
  size_t left = scan.getInits().size() * mesh.count() + 1;
  do {
    if (failed(visitBlock(*scan.getBody())))
      return failure();
  } while (left-- > 0 && widenCarried(scan));
  for (bool again = true; again;) {
    again = false;
    for (auto [index, argument] : llvm::enumerate(scan.getCarriedArguments())) {
      Value yielded = scan.getYieldedCarries()[index],
            result = scan.getResult(index);
      states[result] = State(states[argument]);
      if (failed(check(scan, yielded, states[result], index,
                       "where it is yielded")))
        return failure();
      padding.carry(scan.getInits()[index], result);
      if (failed(padding.merge(scan, result, yielded)))
        return failure();
      again |= padding.learn(argument, result);
    }
    if (again && failed(visitBlock(*scan.getBody())))
      return failure();
  }
  for (auto [yielded, result] :
       llvm::zip_equal(scan.getYieldedStacked(), scan.getStacked())) {
    State state = states[yielded];
    for (AxisState &each : state)
      each.dims <<= 1;
    states[result] = state;
    padding.stack(yielded, result);
  }
  return success();
}

LogicalResult Variance::check(Operation *op, Value value, const State &want,
                              unsigned index, StringRef where) const {
  std::string wrong = mismatch(states.lookup(value), want, "its sharding");
  if (!wrong.empty())
    return op->emitOpError("value ") << index << ", " << where << ", " << wrong;
  return success();
}

/// Returns the first collective inside `op` whose group includes one of the
/// axes.
Operation *Variance::collectiveIn(Operation *op, AxisSet axes) const {
  Operation *found = nullptr;
  op->walk([&](CollectiveOpInterface collective) {
    if (!(setOf(mesh.decompose(collective.getAxes().getAxes())) & axes))
      return WalkResult::advance();
    found = collective;
    return WalkResult::interrupt();
  });
  return found;
}
