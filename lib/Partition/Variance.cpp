//===- Variance.cpp - dist-verify-variance --------------------------------===//
//
// A forward dataflow analysis over local programs: what is a value, along each
// axis of the mesh? It does not trust the partitioner: states of arguments are
// declared, all others follow from the operations' own rules on local shapes.
//
//===----------------------------------------------------------------------===//

#include "AxisState.h"
#include "Regions.h"

#include "cleave/Partition/FactorGraph.h"
#include "cleave/Partition/Passes.h"
#include "llvm/ADT/SmallBitVector.h"

namespace cleave {
#define GEN_PASS_DEF_DISTVERIFYVARIANCEPASS
#include "cleave/Partition/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

namespace {

using State = SmallVector<AxisState, 4>; // one for each axis

class Variance {
public:
  explicit Variance(const MeshAxes &mesh) : mesh(mesh) {}

  LogicalResult verify(func::FuncOp func) {
    for (auto [index, argument] : llvm::enumerate(func.getArguments()))
      states[argument] =
          declared(func.getArgAttrOfType<ShardingAttr>(index, kShardingAttrName));
    if (failed(visitBlock(func.getBody().front())))
      return failure();
    Operation *terminator = func.getBody().front().getTerminator();
    for (auto [index, operand] : llvm::enumerate(terminator->getOperands())) {
      State want = declared(func.getResultAttrOfType<ShardingAttr>(index, kShardingAttrName));
      const State &have = states[operand];
      for (unsigned axis = 0; axis < mesh.count(); ++axis)
        if (!satisfies(have[axis], want[axis]))
          return emitError(operand.getLoc())
                 << "result " << index << " of @" << func.getName() << " is " << have[axis].str()
                 << " over axis " << name(axis) << ", its sharding says " << want[axis].str();
    }
    return success();
  }

private:
  std::string name(unsigned axis) const {
    std::string text;
    llvm::raw_string_ostream out(text);
    AxisRefAttr ref = mesh.ref(axis);
    out << ref.getName();
    if (!ref.isWhole())
      out << ":(" << ref.getPre() << ")" << ref.getSize();
    return text;
  }

  State declared(ShardingAttr sharding) const {
    State state(mesh.count(), {AxisState::Invariant});
    if (!sharding)
      return state;
    Layout layout = mesh.layout(sharding);
    for (auto [dim, axes] : llvm::enumerate(layout.dims))
      for (Axis axis : axes)
        state[axis] = AxisState::split(dim);
    for (Axis axis : listOf(layout.partial))
      state[axis] = AxisState::partial(layout.kind);
    return state;
  }

  static bool satisfies(const AxisState &have, const AxisState &want) {
    if (have.kind == AxisState::Constant)
      return true;
    if (have.kind == AxisState::Invariant && want.kind == AxisState::Split)
      return have.dims & want.dims;
    // What all ranks hold is the largest and the least of what they hold.
    if (have.kind == AxisState::Invariant && want.kind == AxisState::Partial)
      return want.reduce != ReduceKind::Sum;
    if (have.kind == want.kind)
      switch (have.kind) {
      case AxisState::Split:
        return have.maybe || have.dims & want.dims;
      case AxisState::Partial:
        return have.reduce == want.reduce;
      default:
        return true;
      }
    if (have.orPartial && want.kind == AxisState::Partial)
      return have.reduce == want.reduce;
    // A tile computed from the rank's offset is varying; that it is the right
    // tile is for the interpreter to say.
    return (have.kind == AxisState::Varying || have.maybe) && want.kind == AxisState::Split;
  }

  LogicalResult visitBlock(Block &block) {
    for (Operation &op : block.without_terminator())
      if (failed(visit(&op)))
        return failure();
    return success();
  }

  /// A carried value is what its sharding says at every step: at the beginning,
  /// where it is yielded, and after.
  LogicalResult visitRegions(Operation *op) {
    if (auto loop = dyn_cast<scf::ForOp>(op); loop && !hasStaticTripCount(loop))
      if (Operation *collective = collectiveIn(op, ~AxisSet(0)))
        return collective->emitOpError("is in a loop whose bounds are no constants: ranks could "
                                       "disagree on the number of trips");
    auto given = op->getAttrOfType<ArrayAttr>(kShardingAttrName);
    SmallVector<Carried> carried = carriedBy(op);
    if (given && given.size() != carried.size())
      return op->emitOpError("has ") << given.size() << " shardings for " << carried.size()
                                     << " results";
    AxisSet differs = 0;
    if (auto branch = dyn_cast<scf::IfOp>(op)) {
      const State &condition = states[branch.getCondition()];
      for (unsigned axis = 0; axis < mesh.count(); ++axis)
        if (condition[axis].kind != AxisState::Invariant &&
            condition[axis].kind != AxisState::Constant)
          differs |= AxisSet(1) << axis;
      if (Operation *collective = collectiveIn(op, differs))
        return collective->emitOpError("is under a condition that differs between the ranks of "
                                       "its group: some would wait for ever");
    }
    for (auto [index, value] : llvm::enumerate(carried)) {
      State want = declared(given ? cast<ShardingAttr>(given[index]) : ShardingAttr());
      for (Axis axis : listOf(differs))
        if (want[axis].kind != AxisState::Split)
          return op->emitOpError("result ")
                 << index << " is " << want[axis].str() << " over axis " << name(axis)
                 << " as its sharding says, but the condition differs over it";
      if (value.init && failed(check(op, value.init, want, index, "begins")))
        return failure();
      if (value.argument)
        states[value.argument] = want;
      states[value.result] = want;
    }
    if (auto loop = dyn_cast<scf::ForOp>(op))
      states[loop.getInductionVar()] = State(mesh.count(), {AxisState::Invariant});
    for (Region &region : op->getRegions())
      if (!region.empty() && failed(visitBlock(region.front())))
        return failure();
    for (auto [index, value] : llvm::enumerate(carried))
      for (Value yielded : value.yielded)
        if (failed(check(op, yielded, states[value.result], index, "is yielded")))
          return failure();
    return success();
  }

  LogicalResult check(Operation *op, Value value, const State &want, unsigned index,
                      StringRef where) {
    const State have = states[value];
    for (unsigned axis = 0; axis < mesh.count(); ++axis)
      if (!satisfies(have[axis], want[axis]))
        return op->emitOpError("value ")
               << index << " " << where << " " << have[axis].str() << " over axis " << name(axis)
               << ", its sharding says " << want[axis].str();
    return success();
  }

  /// The first collective inside over one of the axes.
  Operation *collectiveIn(Operation *op, AxisSet axes) const {
    Operation *found = nullptr;
    op->walk([&](CollectiveOpInterface collective) {
      if (!(setOf(mesh.decompose(collective.getAxes().getAxes())) & axes))
        return WalkResult::advance();
      found = collective;
      return WalkResult::interrupt();
    });
    return found;
  }

  LogicalResult visit(Operation *op) {
    if (isLoopOrBranch(op))
      return visitRegions(op);
    if (op->getNumRegions() != 0)
      return op->emitOpError("has regions that are not understood");
    if (auto collective = dyn_cast<CollectiveOpInterface>(op))
      return visitCollective(op, setOf(mesh.decompose(collective.getAxes().getAxes())));
    if (isa<dist::SliceOp, KeepFirstOp, AxisIndexOp, TileOffsetOp>(op))
      return visitPlace(op);
    if (op->hasTrait<OpTrait::ConstantLike>()) {
      for (Value result : op->getResults())
        states[result] = State(mesh.count(), {isUniform(op) ? AxisState::Constant
                                                            : AxisState::Invariant});
      return success();
    }
    ShardingRule rule = ruleOf(op);
    for (Value result : op->getResults())
      states[result] = State(mesh.count());
    for (unsigned axis = 0; axis < mesh.count(); ++axis)
      if (failed(transfer(op, rule, axis)))
        return failure();
    return success();
  }

  static bool isUniform(Operation *op) {
    auto dense = dyn_cast_or_null<DenseElementsAttr>(op->getAttr("value"));
    return dense && dense.isSplat();
  }

  /// The states of an operation's results over one axis. If operands cannot be
  /// what they may be, they are varying.
  LogicalResult transfer(Operation *op, const ShardingRule &rule, unsigned axis) {
    SmallVector<std::pair<Value, AxisState>> unsure;
    for (Value operand : op->getOperands())
      if (const AxisState &state = states[operand][axis]; state.maybe)
        unsure.push_back({operand, state});
    if (unsure.empty())
      return transferSure(op, rule, axis);
    LogicalResult done = failure();
    {
      ScopedDiagnosticHandler quiet(op->getContext(), [](Diagnostic &) { return success(); });
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
      other = {AxisState::Varying};
      other.orPartial = state.orPartial || state.kind == AxisState::Partial;
      other.reduce = state.reduce;
    }
    done = transferSure(op, rule, axis);
    for (auto &[operand, state] : unsure)
      states[operand][axis] = state;
    return done;
  }

  LogicalResult transferSure(Operation *op, const ShardingRule &rule, unsigned axis) {
    if (auto reshape = dyn_cast<nn::ReshapeOp>(op))
      return transferReshape(reshape, axis);
    bool anyInvariant = op->getNumOperands() == 0, anyVarying = false;
    // The factors that the axis may split, as the operands say.
    std::optional<llvm::SmallBitVector> candidates;
    SmallVector<unsigned> partial;
    for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
      // Where an operation only places the elements of some operands, it waits
      // for the others and does not read them.
      if (rule.movement && llvm::none_of(rule.linear, [&, i = unsigned(index)](auto &group) {
            return llvm::is_contained(group, i);
          }))
        continue;
      const AxisState &state = states[operand][axis];
      switch (state.kind) {
      case AxisState::Constant:
        break;
      case AxisState::Invariant:
        anyInvariant = true;
        break;
      case AxisState::Varying:
        anyVarying = true;
        break;
      case AxisState::Partial:
        partial.push_back(index);
        break;
      case AxisState::Split: {
        llvm::SmallBitVector mine(rule.factors.size());
        bool unknown = false;
        for (auto [dim, made] : llvm::enumerate(rule.operands[index])) {
          if (!state.isSplitOn(dim))
            continue;
          // Of several factors, the major one is split first, or, where it has
          // one element, the next. A tile of one element may have none.
          if (made.empty())
            unknown = true;
          for (int64_t factor : made) {
            mine.set(factor);
            if (rule.factors[factor].size != 1)
              break;
          }
        }
        if (unknown || mine.none()) {
          anyVarying = true;
          break;
        }
        if (candidates) {
          llvm::SmallBitVector both = *candidates;
          both &= mine;
          if (both.none())
            return op->emitOpError("has operands split on different dimensions by axis ")
                   << name(axis) << ": operand " << index << " is " << state.str();
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
      return carry(op, rule, axis, partial, candidates.has_value() || anyVarying);
    if (candidates && candidates->count() == 1) {
      const Factor &factor = rule.factors[candidates->find_first()];
      if (mustBeWhole(rule, factor) && factor.size > 1)
        return op->emitOpError("needs a dimension whole that is split by axis ") << name(axis);
    }
    for (auto [index, result] : llvm::enumerate(op->getResults())) {
      AxisState &state = states[result][axis];
      if (candidates)
        state = stateOfResult(rule, *candidates, index, anyVarying);
      else if (anyVarying)
        state = varyingResult(rule, index);
      else if (anyInvariant)
        state = invariantResult(op, rule, axis, index);
    }
    keepAddends(op, rule, axis);
    return success();
  }

  /// Joint reductions, and moves between tiles, are spelled out in local
  /// programs; what is left of the operation is whole.
  static bool mustBeWhole(const ShardingRule &rule, const Factor &factor) {
    return factor.kind == FactorKind::NeedReplication || isJoint(factor) ||
           (factor.kind == FactorKind::Permutation && rule.movement);
  }

  /// Tiles that may be of any of several dimensions are tiles of each of them:
  /// one that the operation needs whole says nothing, where others are left.
  static void keepSplittable(const ShardingRule &rule,
                             llvm::SmallBitVector &candidates) {
    llvm::SmallBitVector kept = candidates;
    for (unsigned factor : candidates.set_bits())
      if (mustBeWhole(rule, rule.factors[factor]))
        kept.reset(factor);
    if (kept.any())
      candidates = kept;
  }

  /// Tiles are runs in row-major order where the dimensions before the split
  /// one have one element in them, or pass whole: so the split goes on where
  /// the result has as many elements before a dimension.
  static uint64_t dimsAtSamePlace(ArrayRef<int64_t> from, ArrayRef<int64_t> to, uint64_t dims) {
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

  LogicalResult transferReshape(nn::ReshapeOp op, unsigned axis) {
    ArrayRef<int64_t> from = cast<RankedTensorType>(op.getInput().getType()).getShape();
    ArrayRef<int64_t> to = op.getType().getShape();
    AxisState state = states[op.getInput()][axis];
    if (state.kind == AxisState::Split || state.kind == AxisState::Invariant) {
      uint64_t dims = dimsAtSamePlace(from, to, state.dims);
      if (state.kind == AxisState::Split && !dims)
        return op->emitOpError("needs a dimension whole that is split by axis ")
               << name(axis) << ": operand 0 is " << state.str();
      state.dims = dims;
    }
    states[op.getResult()][axis] = state;
    return success();
  }

  /// Whether every operand repeats along the factor.
  bool repeats(Operation *op, const ShardingRule &rule, unsigned axis, int64_t factor) {
    for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
      const AxisState &state = states[operand][axis];
      if (state.kind == AxisState::Constant)
        continue;
      for (auto [dim, made] : llvm::enumerate(rule.operands[index]))
        if (llvm::is_contained(made, factor) && !(state.dims >> std::min<size_t>(dim, 63) & 1))
          return false;
    }
    return true;
  }

  /// The result of invariant operands repeats where they do, and along
  /// dimensions that a broadcast adds. A reduction of what repeats may be one of
  /// a tile or of the whole.
  AxisState invariantResult(Operation *op, const ShardingRule &rule, unsigned axis,
                            unsigned index) {
    AxisState state = {AxisState::Invariant};
    if (auto iota = dyn_cast<nn::IotaOp>(op))
      for (int64_t dim = 0; dim < iota.getType().getRank(); ++dim)
        if (dim != int64_t(iota.getDim()))
          state.dims |= AxisState::split(dim).dims;
    if (op->getNumOperands() == 0)
      return state;
    for (auto [factor, info] : llvm::enumerate(rule.factors)) {
      bool inResult = llvm::any_of(rule.results[index], [&, f = int64_t(factor)](auto &made) {
        return llvm::is_contained(made, f);
      });
      if (!inResult && info.combiner != FactorCombiner::None && repeats(op, rule, axis, factor))
        return {AxisState::Constant};
    }
    // Along a dimension of its own, an operation may count.
    auto isNew = [&](int64_t factor) {
      return !rule.movement && llvm::none_of(rule.operands, [&](const TensorFactors &dims) {
        return llvm::any_of(
            dims, [&](const DimFactors &made) { return llvm::is_contained(made, factor); });
      });
    };
    for (auto [dim, made] : llvm::enumerate(rule.results[index]))
      for (int64_t factor : made) {
        // The largest of equal elements are equal; their places are not.
        bool passes = rule.factors[factor].kind == FactorKind::PassThrough ||
                      (isa<nn::TopKOp>(op) && index == 0);
        if (passes && !isNew(factor) && repeats(op, rule, axis, factor))
          state.dims |= AxisState::split(dim).dims;
        // What is minor is split only where this has one element.
        if (rule.factors[factor].size != 1)
          break;
      }
    return state;
  }

  /// What is linear in what may be addends gives what may be addends.
  void keepAddends(Operation *op, const ShardingRule &rule, unsigned axis) {
    for (ArrayRef<unsigned> group : rule.linear)
      for (unsigned operand : group) {
        const AxisState from = states[op->getOperand(operand)][axis];
        if (!from.orPartial || (from.reduce != ReduceKind::Sum && !rule.movement))
          continue;
        for (Value result : op->getResults()) {
          AxisState &state = states[result][axis];
          if (state.kind != AxisState::Split && state.kind != AxisState::Varying)
            continue;
          state.orPartial = true;
          state.reduce = from.reduce;
        }
      }
  }

  /// Of a tile that was computed from the rank's offset, a reduction gives
  /// addends or candidates.
  static AxisState varyingResult(const ShardingRule &rule, unsigned index) {
    AxisState state = {AxisState::Varying};
    llvm::SmallBitVector all(rule.factors.size());
    for (auto [factor, info] : llvm::enumerate(rule.factors))
      all[factor] = info.combiner != FactorCombiner::None;
    noteCombined(rule, all, index, state);
    return state;
  }

  AxisState stateOfResult(const ShardingRule &rule, const llvm::SmallBitVector &candidates,
                          unsigned index, bool anyVarying) {
    AxisState state = {AxisState::Split};
    unsigned found = 0;
    for (auto [dim, made] : llvm::enumerate(rule.results[index])) {
      if (made.empty() || !candidates.test(made.front()))
        continue;
      ++found;
      state.dims |= AxisState::split(dim).dims;
      // The split may as well be of the tiles of one element before it.
      for (size_t before = dim; before > 0 && rule.results[index][before - 1].empty(); --before)
        state.dims |= AxisState::split(before - 1).dims;
    }
    const Factor &factor = rule.factors[candidates.find_first()];
    // Where some of the dimensions are left and others combined, the result may
    // be either. Where none is left, all must be combined alike.
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
      if (llvm::any_of(made, [&](int64_t other) { return candidates.test(other); }))
        return {AxisState::Varying}; // Not the major factor of its dimension.
    if (!alike)
      return {AxisState::Varying};
    if (factor.combiner != FactorCombiner::None)
      return AxisState::partial(reduceKindOf(factor.combiner));
    return {factor.kind == FactorKind::PassThrough && !anyVarying ? AxisState::Invariant
                                                                  : AxisState::Varying};
  }

  /// Whether candidates that the result lacks are all combined by one sum,
  /// maximum or minimum.
  static void noteCombined(const ShardingRule &rule, const llvm::SmallBitVector &candidates,
                           unsigned index, AxisState &state) {
    std::optional<FactorCombiner> combiner;
    for (unsigned factor : candidates.set_bits()) {
      bool inResult = llvm::any_of(rule.results[index], [&](const DimFactors &made) {
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

  /// Partial operands may only pass through a group in which the operation is
  /// linear, all of it partial.
  LogicalResult carry(Operation *op, const ShardingRule &rule, unsigned axis,
                      ArrayRef<unsigned> partial, bool anyOther) {
    ReduceKind kind = states[op->getOperand(partial[0])][axis].reduce;
    for (ArrayRef<unsigned> group : rule.linear) {
      if (!llvm::all_of(partial, [&](unsigned index) { return llvm::is_contained(group, index); }))
        continue;
      for (unsigned index : group) {
        Value operand = op->getOperand(index);
        const AxisState &state = states[operand][axis];
        bool fits = state.kind == AxisState::Partial || state.orPartial ? state.reduce == kind
                                                                        : isZeroConstant(operand);
        if (fits)
          continue;
        InFlightDiagnostic error =
            op->emitOpError("combines operand ")
            << partial[0] << " of type " << op->getOperand(partial[0]).getType()
            << ", which is partial (" << stringifyReduceKind(kind) << ") over axis " << name(axis)
            << ", with operand " << index << ", which is " << state.str();
        error.attachNote(op->getOperand(partial[0]).getLoc()) << "the partial value is this one";
        return error;
      }
      if (kind != ReduceKind::Sum && !rule.movement)
        break;
      if (anyOther)
        break;
      for (Value result : op->getResults())
        states[result][axis] = AxisState::partial(kind);
      return success();
    }
    InFlightDiagnostic error = op->emitOpError("reads operand ")
                               << partial[0] << " of type " << op->getOperand(partial[0]).getType()
                               << ", which is partial (" << stringifyReduceKind(kind)
                               << ") over axis " << name(axis)
                               << ", and is not linear in it; reduce it first";
    error.attachNote(op->getOperand(partial[0]).getLoc()) << "the partial value is this one";
    return error;
  }

  LogicalResult visitCollective(Operation *op, AxisSet over) {
    for (auto [index, result] : llvm::enumerate(op->getResults())) {
      State state = states[op->getOperand(index)];
      if (isa<CollectivePermuteOp>(op)) {
        permute(state, over);
        states[result] = std::move(state);
        continue;
      }
      if (auto exchange = dyn_cast<ExchangeOp>(op)) {
        State from = declared(cast<ShardingAttr>(exchange.getFrom()[index]));
        State to = declared(cast<ShardingAttr>(exchange.getTo()[index]));
        for (unsigned axis = 0; axis < mesh.count(); ++axis) {
          if (!satisfies(state[axis], from[axis]))
            return op->emitOpError("takes operand ")
                   << index << " as " << from[axis].str() << " over axis " << name(axis)
                   << ", over which it is " << state[axis].str();
          if (contains(over, axis))
            state[axis] = to[axis];
        }
        states[result] = std::move(state);
        continue;
      }
      for (Axis axis : listOf(over)) {
        AxisState &at = state[axis];
        std::optional<ReduceKind> reduce;
        std::optional<int64_t> from, to;
        bool varies = false;
        if (auto all = dyn_cast<AllReduceOp>(op))
          reduce = all.getKind();
        if (auto scatter = dyn_cast<ReduceScatterOp>(op)) {
          reduce = scatter.getKind();
          to = scatter.getDims()[index];
        }
        if (auto gather = dyn_cast<AllGatherOp>(op))
          from = gather.getDims()[index];
        if (auto window = dyn_cast<WindowOp>(op)) {
          // The same window everywhere gathers; windows end to end are tiles
          // again; others overlap.
          from = window.getDim();
          int64_t length = cast<RankedTensorType>(op->getResult(index).getType())
                               .getDimSize(window.getDim());
          if (std::abs(int64_t(window.getStep())) ==
              length * std::abs(int64_t(window.getStride())))
            to = window.getDim();
          else
            varies = window.getStep() != 0;
        }
        if (auto exchange = dyn_cast<AllToAllOp>(op)) {
          from = exchange.getConcatDims()[index];
          to = exchange.getSplitDims()[index];
        }
        // The largest of equal values is that value.
        bool repeats = at.kind == AxisState::Invariant && reduce && *reduce != ReduceKind::Sum;
        if (reduce && !(at.kind == AxisState::Partial && at.reduce == *reduce) && !repeats &&
            at.kind != AxisState::Varying && at.kind != AxisState::Constant && !at.maybe)
          return op->emitOpError("reduces operand ")
                 << index << " of type " << op->getOperand(index).getType() << " by " << stringifyReduceKind(*reduce) << " over axis " << name(axis)
                 << ", over which it is " << at.str();
        if (from && !satisfies(at, AxisState::split(*from)))
          return op->emitOpError("gathers dimension ")
                 << *from << " of operand " << index << " of type "
                 << op->getOperand(index).getType() << " over axis " << name(axis)
                 << ", over which it is " << at.str();
        at = to ? AxisState::split(*to)
                : AxisState{varies ? AxisState::Varying : AxisState::Invariant};
      }
      states[result] = std::move(state);
    }
    return success();
  }

  /// Tiles change places: what the axes split, each of them may split then.
  void permute(State &state, AxisSet over) const {
    AxisState all = {AxisState::Split};
    for (Axis axis : listOf(over)) {
      if (state[axis].kind != AxisState::Split)
        all.kind = AxisState::Varying;
      all.dims |= state[axis].dims;
    }
    Axes axes = listOf(over);
    // Two axes on two dimensions can only swap.
    bool swaps = axes.size() == 2 && all.kind == AxisState::Split &&
                 llvm::popcount(state[axes[0]].dims) == 1 &&
                 llvm::popcount(state[axes[1]].dims) == 1 && llvm::popcount(all.dims) == 2;
    if (swaps)
      return std::swap(state[axes[0]], state[axes[1]]);
    for (Axis axis : axes)
      state[axis] = all;
  }

  /// Operations that ask where the rank is.
  LogicalResult visitPlace(Operation *op) {
    Value result = op->getResult(0);
    State state(mesh.count(), {AxisState::Invariant});
    if (op->getNumOperands() == 1)
      state = states[op->getOperand(0)];
    AxisListAttr list = op->getAttrOfType<AxisListAttr>("axes");
    for (Axis axis : mesh.decompose(list.getAxes())) {
      AxisState &at = state[axis];
      bool shared = at.kind == AxisState::Invariant || at.kind == AxisState::Constant;
      if (op->getNumOperands() == 1 && !shared)
        return op->emitOpError("takes a part over axis ")
               << name(axis) << " of a value of type " << op->getOperand(0).getType()
               << " that is " << at.str() << " over it";
      if (auto slice = dyn_cast<dist::SliceOp>(op))
        at = AxisState::split(slice.getDim());
      else if (isa<KeepFirstOp>(op))
        at = AxisState::partial(ReduceKind::Sum);
      else
        at = {AxisState::Varying};
    }
    states[result] = std::move(state);
    return success();
  }

  const MeshAxes &mesh;
  llvm::DenseMap<Value, State> states;
};

struct DistVerifyVariancePass : cleave::impl::DistVerifyVariancePassBase<DistVerifyVariancePass> {
  using Base::Base;

  void runOnOperation() override {
    FailureOr<MeshAxes> mesh = MeshAxes::of(getOperation());
    if (failed(mesh))
      return signalPassFailure();
    bool wrong = false;
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (!func.isExternal())
        wrong |= failed(Variance(*mesh).verify(func));
    if (wrong)
      return signalPassFailure();
    markAllAnalysesPreserved();
  }
};

} // namespace
