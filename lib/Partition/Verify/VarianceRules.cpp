//===- VarianceRules.cpp - states through sharding rules ------------------===//
//
// Computes the variance states (AxisState.h) of an operation's results from
// those of its operands, by the operation's sharding rule on local shapes.
//
//===----------------------------------------------------------------------===//

#include "cleave/Partition/Verify/Variance.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/LocalPlan.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

namespace {

/// Returns whether an operation needs the whole dimension of this factor on
/// each rank, because it would combine the tiles of several ranks or move
/// elements between tiles. In per-rank programs, only collectives do this.
bool mustBeWhole(const ShardingRule &rule, const Factor &factor) {
  return factor.kind == FactorKind::NeedReplication || isJoint(factor) ||
         (factor.kind == FactorKind::Permutation && rule.movement);
}

/// If it is unclear which of several factors an axis splits, removes the
/// factors that the operation needs unsplit, unless no other is left.
void keepSplittable(const ShardingRule &rule,
                    llvm::SmallBitVector &candidates) {
  llvm::SmallBitVector kept = candidates;
  for (unsigned factor : candidates.set_bits())
    if (mustBeWhole(rule, rule.factors[factor]))
      kept.reset(factor);
  if (kept.any())
    candidates = kept;
}

/// Returns the dimensions of a reshape's result (shape `to`) that may be split
/// if `dims` of its operand (shape `from`) may be: those for which the product
/// of the preceding sizes is the same. Dimensions before a split one have one
/// element or are unsplit, so a tile is the same contiguous run in both shapes.
uint64_t dimsAtSamePlace(ArrayRef<int64_t> from, ArrayRef<int64_t> to,
                         uint64_t dims) {
  uint64_t result = 0;
  int64_t before = 1;
  for (auto [dim, size] : llvm::enumerate(from)) {
    if (AxisState::split(dim).dims & dims) {
      int64_t beforeResult = 1;
      for (auto [other, extent] : llvm::enumerate(to)) {
        if (beforeResult == before)
          result |= AxisState::split(other).dims;
        beforeResult *= extent;
      }
    }
    before *= size;
  }
  return result;
}

/// The axis splits one of the factors `candidates`. If all of those that the
/// result lacks have the same combiner, records that the result may be partial.
void noteCombined(const ShardingRule &rule,
                  const llvm::SmallBitVector &candidates, unsigned index,
                  AxisState &state) {
  std::optional<FactorCombiner> combiner;
  for (unsigned factor : candidates.set_bits()) {
    bool inResult =
        llvm::any_of(rule.results[index], [&](const DimFactors &made) {
          return llvm::is_contained(made, factor);
        });
    if (inResult)
      continue;
    if (combiner && *combiner != rule.factors[factor].combiner)
      return;
    combiner = rule.factors[factor].combiner;
  }
  if (!combiner || *combiner == FactorCombiner::None)
    return;
  state.orPartial = true;
  state.reduce = reduceKindOf(*combiner);
}

/// Returns the state of a result of Varying operands. These may be tiles
/// computed from the rank's offset; a reduction of tiles gives partial results.
AxisState varyingResult(const ShardingRule &rule, unsigned index) {
  AxisState state = AxisState::of(AxisState::Varying);
  llvm::SmallBitVector all(rule.factors.size());
  for (auto [factor, info] : llvm::enumerate(rule.factors))
    all[factor] = info.combiner != FactorCombiner::None;
  noteCombined(rule, all, index, state);
  return state;
}

AxisState stateOfResult(const ShardingRule &rule,
                        const llvm::SmallBitVector &candidates, unsigned index,
                        bool anyVarying) {
  AxisState state = AxisState::of(AxisState::Split);
  unsigned found = 0;
  for (auto [dim, made] : llvm::enumerate(rule.results[index])) {
    if (made.empty() || !candidates.test(made.front()))
      continue;
    ++found;
    state.dims |= AxisState::split(dim).dims;
    // A one-element dimension before the split dimension may be the split one
    // as well.
    for (size_t before = dim;
         before > 0 && rule.results[index][before - 1].empty(); --before)
      state.dims |= AxisState::split(before - 1).dims;
  }
  const Factor &factor = rule.factors[candidates.find_first()];
  // The axis splits one of the candidate factors. If the result has some of
  // them and others are reduced, the ranks hold either tiles or partial
  // results. If it has none, all must be reduced by the same combiner.
  bool alike = llvm::all_of(candidates.set_bits(), [&](unsigned other) {
    const Factor &info = rule.factors[other];
    return info.kind == factor.kind && info.combiner == factor.combiner;
  });
  if (found) {
    state.maybe = found < candidates.count();
    noteCombined(rule, candidates, index, state);
    return state;
  }
  for (const DimFactors &made : rule.results[index])
    if (llvm::any_of(made,
                     [&](int64_t other) { return candidates.test(other); }))
      return AxisState::of(
          AxisState::Varying); // not the major factor of its dimension
  if (!alike)
    return AxisState::of(AxisState::Varying);
  if (factor.combiner != FactorCombiner::None)
    return AxisState::partial(reduceKindOf(factor.combiner));
  return AxisState::of(factor.kind == FactorKind::PassThrough && !anyVarying
                           ? AxisState::Invariant
                           : AxisState::Varying);
}

} // namespace

/// Computes the states of an operation's results over one axis. If the states
/// of the operands contradict each other, every operand whose state is only one
/// of several possibilities (AxisState::maybe) is treated as Varying.
LogicalResult Variance::transfer(Operation *op, const ShardingRule &rule,
                                 unsigned axis) {
  SmallVector<std::pair<Value, AxisState>> unsure;
  for (Value operand : op->getOperands())
    if (const AxisState &state = states[operand][axis]; state.maybe)
      unsure.push_back({operand, state});
  if (unsure.empty())
    return transferSure(op, rule, axis);
  LogicalResult done = failure();
  {
    ScopedDiagnosticHandler quiet(op->getContext(),
                                  [](Diagnostic &) { return success(); });
    done = transferSure(op, rule, axis);
  }
  if (succeeded(done)) {
    for (Value result : op->getResults())
      if (AxisState &state = states[result][axis];
          state.kind == AxisState::Split || state.kind == AxisState::Partial)
        state.maybe = true;
    return success();
  }
  for (auto &[operand, state] : unsure) {
    AxisState &other = states[operand][axis];
    other = AxisState::of(AxisState::Varying);
    other.orPartial = state.orPartial || state.kind == AxisState::Partial;
    other.reduce = state.reduce;
  }
  done = transferSure(op, rule, axis);
  for (auto &[operand, state] : unsure)
    states[operand][axis] = state;
  return done;
}

/// Returns the factors of operand `index` that an axis may split, given the
/// operand's state over this axis. Returns none if the state does not tell.
static llvm::SmallBitVector
splitFactors(const AxisState &state, const ShardingRule &rule, unsigned index) {
  llvm::SmallBitVector factors(rule.factors.size());
  for (auto [dim, made] : llvm::enumerate(rule.operands[index])) {
    if (!state.isSplitOn(dim))
      continue;
    // A one-element tile may have no factor.
    if (made.empty())
      return llvm::SmallBitVector(rule.factors.size());
    // A split of a dimension of several factors splits the major factor; if
    // that has one element, the next one.
    for (int64_t factor : made) {
      factors.set(factor);
      if (rule.factors[factor].size != 1)
        break;
    }
  }
  return factors;
}

LogicalResult Variance::transferSure(Operation *op, const ShardingRule &rule,
                                     unsigned axis) {
  if (isa<nn::ReshapeOp>(op))
    return transferReshape(op, axis);
  bool anyVarying = false;
  // The factors that the axis may split, given the states of the operands.
  std::optional<llvm::SmallBitVector> candidates;
  SmallVector<unsigned> partial;
  for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
    if (llvm::is_contained(rule.waited, unsigned(index)))
      continue;
    const AxisState &state = states[operand][axis];
    switch (state.kind) {
    case AxisState::Zero:
    case AxisState::Invariant:
      break;
    case AxisState::Varying:
      anyVarying = true;
      break;
    case AxisState::Partial:
      partial.push_back(index);
      break;
    case AxisState::Split: {
      llvm::SmallBitVector mine = splitFactors(state, rule, index);
      if (mine.none()) {
        anyVarying = true;
        break;
      }
      if (candidates) {
        llvm::SmallBitVector both = *candidates;
        both &= mine;
        if (both.none())
          return op->emitOpError(
                     "has operands split on different dimensions by axis ")
                 << name(axis) << ": operand " << index << " is "
                 << state.str();
        mine = both;
      }
      candidates = mine;
      break;
    }
    }
  }
  if (candidates)
    keepSplittable(rule, *candidates);
  if (!partial.empty())
    return carry(op, rule, axis, partial);
  if (candidates && candidates->count() == 1) {
    const Factor &factor = rule.factors[candidates->find_first()];
    if (mustBeWhole(rule, factor) && factor.size > 1)
      return op->emitOpError("needs a dimension whole that is split by axis ")
             << name(axis);
    if (failed(checkWhole(op, rule, axis, candidates->find_first())))
      return failure();
  }
  for (auto [index, result] : llvm::enumerate(op->getResults())) {
    AxisState &state = states[result][axis];
    if (isZero(op, rule, axis))
      state = AxisState::of(AxisState::Zero);
    else if (candidates)
      state = stateOfResult(rule, *candidates, index, anyVarying);
    else if (anyVarying)
      state = varyingResult(rule, index);
    else
      state = invariantResult(op, rule, axis, index);
  }
  keepPartialSums(op, rule, axis);
  return success();
}

/// If some operands are tiles along a factor, checks that no other operand is
/// whole along it, unless that operand's elements are equal along the factor.
LogicalResult Variance::checkWhole(Operation *op, const ShardingRule &rule,
                                   unsigned axis, int64_t factor) const {
  if (rule.factors[factor].size <= 1)
    return success();
  for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
    const AxisState &state = states.find(operand)->second[axis];
    if (state.kind != AxisState::Invariant ||
        llvm::is_contained(rule.waited, unsigned(index)))
      continue;
    for (auto [dim, made] : llvm::enumerate(rule.operands[index]))
      if (llvm::is_contained(made, factor) &&
          !(state.dims >> std::min<size_t>(dim, 63) & 1))
        return op->emitOpError("combines tiles over axis ")
               << name(axis) << " with operand " << index << " of type "
               << operand.getType()
               << ", of which all ranks hold the same along dimension " << dim;
  }
  return success();
}

/// Determines the state after a reshape from the shapes and not from the
/// sharding rule, because tiles may have fewer factors than whole tensors.
LogicalResult Variance::transferReshape(Operation *op, unsigned axis) {
  auto from = cast<RankedTensorType>(op->getOperand(0).getType()).getShape();
  auto to = cast<RankedTensorType>(op->getResult(0).getType()).getShape();
  AxisState state = states[op->getOperand(0)][axis];
  state.majorTo = 0;
  if (state.kind == AxisState::Split || state.kind == AxisState::Invariant) {
    uint64_t dims = dimsAtSamePlace(from, to, state.dims);
    if (state.kind == AxisState::Split && !dims)
      return op->emitOpError("needs a dimension whole that is split by axis ")
             << name(axis) << ": operand 0 is " << state.str();
    state.dims = dims;
  }
  states[op->getResult(0)][axis] = state;
  return success();
}

/// Returns whether every operand has equal elements along the factor.
bool Variance::repeats(Operation *op, const ShardingRule &rule, unsigned axis,
                       int64_t factor) const {
  for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
    const AxisState &state = states.find(operand)->second[axis];
    if (state.kind == AxisState::Zero ||
        llvm::is_contained(rule.waited, unsigned(index)))
      continue;
    for (auto [dim, made] : llvm::enumerate(rule.operands[index]))
      if (llvm::is_contained(made, factor) &&
          !(state.dims >> std::min<size_t>(dim, 63) & 1))
        return false;
  }
  return true;
}

/// Returns whether the result is zero, because the operation is linear in a
/// group of operands that are all zero.
bool Variance::isZero(Operation *op, const ShardingRule &rule,
                      unsigned axis) const {
  return llvm::any_of(rule.linear, [&](ArrayRef<unsigned> group) {
    return llvm::all_of(group, [&](unsigned index) {
      return states.find(op->getOperand(index))->second[axis].kind ==
             AxisState::Zero;
    });
  });
}

/// Returns the state of a result if all ranks have the same operands. `dims`
/// has the dimensions along which all elements of the result are equal: those
/// along which the elements of all operands are equal, and broadcast ones.
/// Operands with equal elements along a reduced dimension may be tiles or whole
/// tensors; so the result may be partial (`orPartial`) or complete.
AxisState Variance::invariantResult(Operation *op, const ShardingRule &rule,
                                    unsigned axis, unsigned index) const {
  AxisState state = AxisState::of(AxisState::Invariant);
  auto has = [](const TensorFactors &dims, int64_t factor) {
    return llvm::any_of(
        dims, [&](auto &made) { return llvm::is_contained(made, factor); });
  };
  for (auto [factor, info] : llvm::enumerate(rule.factors))
    if (!has(rule.results[index], factor) &&
        info.combiner != FactorCombiner::None &&
        repeats(op, rule, axis, factor)) {
      state.orPartial = true;
      state.reduce = reduceKindOf(info.combiner);
    }
  // Along a dimension that no operand has, the elements of the result may
  // differ, because they may depend on the index (as in an iota).
  auto isNew = [&](int64_t factor) {
    return !rule.movement && op->getNumOperands() != 0 &&
           llvm::none_of(rule.operands, [&](const TensorFactors &dims) {
             return has(dims, factor);
           });
  };
  for (auto [dim, made] : llvm::enumerate(rule.results[index]))
    for (int64_t factor : made) {
      const Factor &info = rule.factors[factor];
      // Of equal elements, top-k returns equal values, but different indices.
      bool passes = info.kind == FactorKind::PassThrough ||
                    (isa<nn::TopKOp>(op) && index == 0);
      if (passes && !info.indexed && !isNew(factor) &&
          repeats(op, rule, axis, factor))
        state.dims |= AxisState::split(dim).dims;
      // Splitting a dimension splits its major factor. A minor factor is split
      // only if all factors major to it have one element.
      if (info.size != 1)
        break;
    }
  return state;
}

/// If an operation is linear in operands that may be partial sums, its results
/// may be partial sums as well.
void Variance::keepPartialSums(Operation *op, const ShardingRule &rule,
                               unsigned axis) {
  for (ArrayRef<unsigned> group : rule.linear) {
    const AxisState *from = nullptr;
    for (unsigned operand : group)
      if (const AxisState &state = states[op->getOperand(operand)][axis];
          state.orPartial)
        from = &state;
    if (!from ||
        (from->reduce != ReduceKind::Sum && !rule.movement && !rule.chooses))
      continue;
    ReduceKind reduce = from->reduce;
    if (!llvm::all_of(group, [&](unsigned operand) {
          return states[op->getOperand(operand)][axis].mayBePartial(reduce);
        }))
      continue;
    for (Value result : op->getResults()) {
      AxisState &state = states[result][axis];
      if (state.kind == AxisState::Partial || state.kind == AxisState::Zero)
        continue;
      state.orPartial = true;
      state.reduce = reduce;
    }
  }
}

/// All partial operands must be in one group of operands in which the operation
/// is linear (ShardingRule::linear), and the whole group must be partial.
LogicalResult Variance::carry(Operation *op, const ShardingRule &rule,
                              unsigned axis, ArrayRef<unsigned> partial) {
  ReduceKind kind = states[op->getOperand(partial[0])][axis].reduce;
  for (ArrayRef<unsigned> group : rule.linear) {
    if (!llvm::all_of(partial, [&](unsigned index) {
          return llvm::is_contained(group, index);
        }))
      continue;
    for (unsigned index : group) {
      Value operand = op->getOperand(index);
      const AxisState &state = states[operand][axis];
      bool fits = state.mayBePartial(kind) || state.kind == AxisState::Zero;
      if (fits)
        continue;
      InFlightDiagnostic error =
          op->emitOpError("combines operand ")
          << partial[0] << " of type " << op->getOperand(partial[0]).getType()
          << ", which is partial (" << stringifyReduceKind(kind)
          << ") over axis " << name(axis) << ", with operand " << index
          << ", which is " << state.str();
      error.attachNote(op->getOperand(partial[0]).getLoc())
          << "the partial value is this one";
      return error;
    }
    if (kind != ReduceKind::Sum && !rule.movement && !rule.chooses)
      break;
    // The operands of this linear group are read as partial sums. All other
    // operands must be equal on all ranks, that is, not Split or Varying.
    if (llvm::any_of(llvm::enumerate(op->getOperands()), [&](auto operand) {
          AxisState::Kind have = states[operand.value()][axis].kind;
          return (have == AxisState::Split || have == AxisState::Varying) &&
                 !llvm::is_contained(group, unsigned(operand.index())) &&
                 !llvm::is_contained(rule.waited, unsigned(operand.index()));
        }))
      break;
    for (Value result : op->getResults())
      states[result][axis] = AxisState::partial(kind);
    return success();
  }
  InFlightDiagnostic error =
      op->emitOpError("reads operand ")
      << partial[0] << " of type " << op->getOperand(partial[0]).getType()
      << ", which is partial (" << stringifyReduceKind(kind) << ") over axis "
      << name(axis) << ", and is not linear in it; reduce it first";
  error.attachNote(op->getOperand(partial[0]).getLoc())
      << "the partial value is this one";
  return error;
}

/// Axes that split one dimension keep their order. A reshape that merges
/// dimensions puts the axes of the major dimension first.
LogicalResult Variance::transferOrder(Operation *op, const ShardingRule &rule) {
  SmallVector<AxisSet, 8> majorTo(mesh.count(), 0);
  bool any = false;
  for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
    if (llvm::is_contained(rule.waited, unsigned(index)))
      continue;
    const State &state = states[operand];
    for (unsigned axis = 0; axis < mesh.count(); ++axis) {
      if (state[axis].kind != AxisState::Split || !state[axis].majorTo)
        continue;
      for (Axis minor : listOf(state[axis].majorTo))
        if (contains(majorTo[minor], axis))
          return op->emitOpError("has operands split by axes ")
                 << name(axis) << " and " << name(minor)
                 << " in different orders";
      majorTo[axis] |= state[axis].majorTo;
      any = true;
    }
  }
  if (isa<nn::ReshapeOp>(op)) {
    const State &state = states[op->getOperand(0)];
    for (unsigned axis = 0; axis < mesh.count(); ++axis)
      for (unsigned other = 0; other < mesh.count(); ++other)
        if (state[axis].isSurelySplit() && state[other].isSurelySplit() &&
            state[axis].dims < state[other].dims)
          majorTo[axis] |= AxisSet(1) << other, any = true;
  }
  if (!any)
    return success();
  for (Value result : op->getResults()) {
    State &state = states[result];
    for (unsigned axis = 0; axis < mesh.count(); ++axis)
      for (Axis minor : listOf(majorTo[axis]))
        if (state[axis].isSurelySplit() && state[minor].isSurelySplit() &&
            state[axis].dims == state[minor].dims)
          state[axis].majorTo |= AxisSet(1) << minor;
  }
  return success();
}
