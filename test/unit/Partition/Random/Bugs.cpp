// The injected bugs. Each bug is systematic, like a mistake in the partitioner:
// it is made at every operation of the program where it is possible. The result
// is valid IR, so only dist-verify-variance and the comparison of results can
// find the bug. The function of a bug injects it into a module, and returns
// false if the module has no operation where it is possible.

#include "Bugs.h"
#include "Shrink.h"

#include "cleave/Partition/Propagation/FactorGraph.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::random;

namespace {

/// Applies `change` to every operation of type Op. Returns true if it changed
/// at least one of them.
template <typename Op>
bool forEach(ModuleOp module, llvm::function_ref<bool(Op)> change) {
  SmallVector<Op> ops;
  module.walk([&](Op op) { ops.push_back(op); });
  bool any = false;
  for (Op op : ops)
    any |= change(op);
  return any;
}

/// Reverses the order of the mesh axes of an operation, so that it numbers the
/// ranks of a group in another order. Returns false if there are fewer than two
/// axes, because their order then has no effect.
template <typename Op> bool reverseAxes(Op op) {
  SmallVector<AxisRefAttr> axes(op.getAxes().getAxes());
  if (axes.size() < 2)
    return false;
  std::reverse(axes.begin(), axes.end());
  op.setAxesAttr(AxisListAttr::get(op.getContext(), axes));
  return true;
}

template <typename Op> bool skip(Op op) {
  op->replaceAllUsesWith(op->getOperands());
  op.erase();
  return true;
}

//===----------------------------------------------------------------------===//
// Offsets of ranks
//===----------------------------------------------------------------------===//

bool offsetAxisOrder(ModuleOp module) {
  return forEach<TileOffsetOp>(module, reverseAxes<TileOffsetOp>);
}

bool offsetByOne(ModuleOp module) {
  return forEach<TileOffsetOp>(module, [](TileOffsetOp op) {
    op.setTile(op.getTile() + 1);
    return true;
  });
}

/// Bug: every rank counts positions from the beginning of its own tile, as if
/// the tile's offset were 0.
bool offsetForgotten(ModuleOp module) {
  return forEach<TileOffsetOp>(module, [](TileOffsetOp op) {
    OpBuilder builder(op);
    op.replaceAllUsesWith(
        nn::createSplat(builder, op.getLoc(), op.getType(), 0));
    op.erase();
    return true;
  });
}

bool sliceAxisOrder(ModuleOp module) {
  return forEach<dist::SliceOp>(module, reverseAxes<dist::SliceOp>);
}

bool gatherAxisOrder(ModuleOp module) {
  return forEach<AllGatherOp>(module, reverseAxes<AllGatherOp>);
}

//===----------------------------------------------------------------------===//
// Sums over ranks
//===----------------------------------------------------------------------===//

bool lostAllReduce(ModuleOp module) {
  return forEach<AllReduceOp>(module, skip<AllReduceOp>);
}

bool wrongAxis(ModuleOp module) {
  return forEach<AllReduceOp>(module, [&](AllReduceOp op) {
    MeshAttr mesh = MeshOp::lookup(op, op.getMeshAttr()).getMesh();
    for (MeshAxisAttr axis : mesh.getAxes()) {
      auto other = AxisRefAttr::get(op.getContext(), axis.getName(), 1, 0);
      bool used = llvm::any_of(op.getAxes().getAxes(), [&](AxisRefAttr ref) {
        return overlaps(mesh, ref, other);
      });
      if (used || axis.getSize() == 1)
        continue;
      op.setAxesAttr(AxisListAttr::get(op.getContext(), {other}));
      return true;
    }
    return false;
  });
}

bool maxForSum(ModuleOp module) {
  auto change = [](auto op) {
    if (op.getKind() != ReduceKind::Sum)
      return false;
    op.setKind(ReduceKind::Max);
    return true;
  };
  bool any = forEach<AllReduceOp>(module, change);
  return forEach<ReduceScatterOp>(module, change) || any;
}

/// Bug: each rank slices out its tile before the reduction, so that tiles at
/// different offsets are summed.
bool sliceBeforeReduce(ModuleOp module) {
  return forEach<ReduceScatterOp>(module, [](ReduceScatterOp op) {
    OpBuilder builder(op);
    Value slice = dist::SliceOp::create(
        builder, op.getLoc(), op->getResult(0).getType(), op->getOperand(0),
        builder.getI64IntegerAttr(op.getDims()[0]), op.getMeshAttr(),
        op.getAxesAttr());
    auto reduce = AllReduceOp::create(
        builder, op.getLoc(), TypeRange{slice.getType()}, op.getKindAttr(),
        ValueRange{slice}, op.getMeshAttr(), op.getAxesAttr(),
        op.getPurposeAttr());
    op->replaceAllUsesWith(reduce);
    op.erase();
    return true;
  });
}

bool keepFirstDropped(ModuleOp module) {
  return forEach<KeepFirstOp>(module, skip<KeepFirstOp>);
}

/// Bug: computes the sum of f(partial sum) instead of f(sum of partial sums).
bool reduceAfterNonLinear(ModuleOp module) {
  return forEach<AllReduceOp>(module, [](AllReduceOp op) {
    if (op.getKind() != ReduceKind::Sum || op->getNumOperands() != 1 ||
        !op->hasOneUse())
      return false;
    Operation *reader = *op->user_begin();
    auto rule = dyn_cast<ShardingRuleInterface>(reader);
    if (!rule || reader->getNumOperands() != 1 ||
        reader->getNumResults() != 1 ||
        !rule.getShardingRule().linear.empty() ||
        reader->getResult(0).getType() != op->getResult(0).getType())
      return false;
    reader->setOperand(0, op->getOperand(0));
    op->moveAfter(reader);
    reader->getResult(0).replaceAllUsesWith(op->getResult(0));
    op->setOperand(0, reader->getResult(0));
    return true;
  });
}

/// Bug: the plan marks a result as a partial sum although its operand was
/// already reduced.
bool partialTwice(ModuleOp module) {
  FailureOr<MeshAxes> mesh = MeshAxes::of(module);
  if (failed(mesh))
    return false;
  return forEach<nn::ReshapeOp>(module, [&](nn::ReshapeOp op) {
    auto plan = op->getAttrOfType<PlanAttr>(kPlanAttrName);
    auto given = op->getAttrOfType<ArrayAttr>(kShardingAttrName);
    if (!plan || !given || !plan.getCarry().getAxes().empty())
      return false;
    Layout layout = mesh->layout(cast<ShardingAttr>(given[0]));
    AxisSet used = layout.used();
    for (Attribute axes : plan.getFactors())
      used |= setOf(mesh->decompose(cast<AxisListAttr>(axes).getAxes()));
    for (Axis axis = 0; axis < mesh->count(); ++axis) {
      if (contains(used, axis))
        continue;
      layout.partial = AxisSet(1) << axis;
      layout.kind = ReduceKind::Sum;
      Builder builder(op.getContext());
      op->setAttr(kShardingAttrName,
                  builder.getArrayAttr({mesh->sharding(layout)}));
      op->setAttr(kPlanAttrName,
                  PlanAttr::get(op.getContext(), mesh->list(layout.partial),
                                plan.getFactors()));
      return true;
    }
    return false;
  });
}

//===----------------------------------------------------------------------===//
// Exchanges
//===----------------------------------------------------------------------===//

bool exchangeAxisOrder(ModuleOp module) {
  return forEach<AllToAllOp>(module, reverseAxes<AllToAllOp>);
}

bool permutationInverted(ModuleOp module) {
  return forEach<CollectivePermuteOp>(module, [](CollectivePermuteOp op) {
    SmallVector<int64_t> pairs(op.getPairs());
    llvm::SmallDenseMap<int64_t, int64_t> target;
    bool differs = false;
    for (size_t i = 0; i < pairs.size(); i += 2)
      target[pairs[i]] = pairs[i + 1];
    for (size_t i = 0; i < pairs.size(); i += 2) {
      differs |= target[pairs[i + 1]] != pairs[i];
      std::swap(pairs[i], pairs[i + 1]);
    }
    op.setPairs(pairs);
    return differs;
  });
}

/// Bug: an operation reads a value in its old layout, because the collective
/// that moves it to the new layout is dropped.
bool staleLayout(ModuleOp module) {
  return forEach<CollectivePermuteOp>(module, skip<CollectivePermuteOp>);
}

/// Bug: the halo or slice that a rank reads begins one element too late.
bool windowShifted(ModuleOp module) {
  return forEach<WindowOp>(module, [](WindowOp op) {
    op.setBase(op.getBase() + 1);
    return true;
  });
}

//===----------------------------------------------------------------------===//
// Padding
//===----------------------------------------------------------------------===//

bool forEachMask(ModuleOp module,
                 llvm::function_ref<bool(arith::SelectOp)> change) {
  return forEach<arith::SelectOp>(module, [&](arith::SelectOp op) {
    return op->hasAttr(kPadMaskAttrName) && change(op);
  });
}

bool padUnmasked(ModuleOp module) {
  return forEachMask(module, [](arith::SelectOp op) {
    op.replaceAllUsesWith(op.getTrueValue());
    op.erase();
    return true;
  });
}

/// Bug: drops only the last mask. A proof that checks only the first masks
/// would not find this bug.
bool maskDropped(ModuleOp module) {
  arith::SelectOp last;
  module.walk([&](arith::SelectOp op) {
    if (op->hasAttr(kPadMaskAttrName))
      last = op;
  });
  if (!last)
    return false;
  last.replaceAllUsesWith(last.getTrueValue());
  last.erase();
  return true;
}

/// Bug: a mask replaces padding by a wrong value. The right value is the
/// neutral element of the reduction that follows; it is replaced by zero, or by
/// one if it is zero.
bool wrongIdentity(ModuleOp module) {
  return forEachMask(module, [](arith::SelectOp op) {
    OpBuilder builder(op);
    Value identity = nn::createSplat(
        builder, op.getLoc(), cast<RankedTensorType>(op.getType()),
        partition::isZeroConstant(op.getFalseValue()));
    op.getFalseValueMutable().assign(identity);
    return true;
  });
}

/// Bug: the mask also hides the last element, as if it were padding.
bool maskByOne(ModuleOp module) {
  return forEachMask(module, [](arith::SelectOp op) {
    auto compare = op.getCondition().getDefiningOp<arith::CmpIOp>();
    Value bound = compare.getRhs();
    if (auto broadcast = bound.getDefiningOp<nn::BroadcastOp>())
      bound = broadcast.getInput();
    auto count = bound.getDefiningOp<arith::SubIOp>();
    DenseIntElementsAttr size;
    if (!count || !matchPattern(count.getLhs(), m_Constant(&size)))
      return false;
    OpBuilder builder(count);
    count.getLhsMutable().assign(nn::createSplat(
        builder, op.getLoc(), cast<RankedTensorType>(count.getType()),
        size.getSplatValue<APInt>().getSExtValue() - 1));
    return true;
  });
}

/// Bug: the mask tests for padding along the next dimension instead of its own.
bool maskDimension(ModuleOp module) {
  return forEachMask(module, [](arith::SelectOp op) {
    auto compare = op.getCondition().getDefiningOp<arith::CmpIOp>();
    auto index = compare.getLhs().getDefiningOp<nn::IotaOp>();
    int64_t rank = cast<RankedTensorType>(op.getType()).getRank();
    if (!index || rank < 2)
      return false;
    index.setDim((index.getDim() + 1) % rank);
    return true;
  });
}

/// Bug: indices beyond the end of a table read the padding of the table's last
/// tile.
bool indicesUnguarded(ModuleOp module) {
  return forEach<nn::GatherOp>(module, [](nn::GatherOp op) {
    auto guard = op.getIndices().getDefiningOp<arith::SelectOp>();
    if (!guard || !guard.getTrueValue().getDefiningOp<arith::SubIOp>())
      return false;
    op.getIndicesMutable().assign(guard.getTrueValue());
    return true;
  });
}

/// Bug: a dimension stays sharded although an operation needs it unsharded.
bool neededWhole(ModuleOp module) {
  FailureOr<MeshAxes> mesh = MeshAxes::of(module);
  if (failed(mesh))
    return false;
  bool any = false;
  module.walk([&](Operation *op) {
    auto plan = op->getAttrOfType<PlanAttr>(kPlanAttrName);
    if (!plan || !isa<ShardingRuleInterface>(op))
      return;
    ShardingRule rule = partition::ruleOf(op);
    SmallVector<Attribute> factors(plan.getFactors().getValue());
    AxisSet used = setOf(mesh->decompose(plan.getCarry().getAxes()));
    for (Attribute axes : factors)
      used |= setOf(mesh->decompose(cast<AxisListAttr>(axes).getAxes()));
    // The bug splits a dimension that must stay whole into tiles. Operations
    // that only move elements are left out, because their attributes contain
    // shapes, which would not match the tiles.
    for (auto [factor, info] : llvm::enumerate(rule.factors))
      for (Axis axis = 0; axis < mesh->count() && !rule.movement; ++axis) {
        if (info.kind != FactorKind::NeedReplication ||
            info.size % (2 * mesh->size(axis)) != 0 || contains(used, axis))
          continue;
        used |= AxisSet(1) << axis;
        factors[factor] = mesh->list(AxisSet(1) << axis);
        any = true;
        break;
      }
    Builder builder(op->getContext());
    op->setAttr(kPlanAttrName, PlanAttr::get(op->getContext(), plan.getCarry(),
                                             builder.getArrayAttr(factors)));
  });
  return any;
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

/// Bug: a loop reads slices and stacks results in the opposite order.
bool loopReversed(ModuleOp module) {
  return forEach<nn::ScanOp>(module, [](nn::ScanOp op) {
    op.setReverse(!op.getReverse());
    return op.getTrips() > 1;
  });
}

/// Bug: every iteration begins with the initial values.
bool carryForgotten(ModuleOp module) {
  return forEach<nn::ScanOp>(module, [](nn::ScanOp op) {
    for (auto [init, argument] :
         llvm::zip_equal(llvm::to_vector(op.getInits()),
                         llvm::to_vector(op.getCarriedArguments()))) {
      op.getCapturesMutable().append(init);
      argument.replaceAllUsesWith(
          op.getBody()->addArgument(init.getType(), init.getLoc()));
    }
    return !op.getInits().empty() && op.getTrips() > 1;
  });
}

} // namespace

ArrayRef<Bug> cleave::random::plantedBugs() {
  static const Bug bugs[] = {
      {"offset-axis-order",
       "a tile's offset counts its axes in the wrong order", "dist-partition",
       offsetAxisOrder},
      {"offset-by-one",
       "a tile's offset grows by one element too many per rank",
       "dist-partition", offsetByOne},
      {"offset-forgotten", "local indices are taken for global ones",
       "dist-partition", offsetForgotten},
      {"slice-axis-order", "a slice counts its axes in the wrong order",
       "dist-partition", sliceAxisOrder},
      {"gather-axis-order", "a gather counts its axes in the wrong order",
       "dist-partition", gatherAxisOrder},
      {"lost-all-reduce", "partial sums are read as if they were the sum",
       "dist-partition", lostAllReduce},
      {"wrong-axis", "partial sums are summed over another axis",
       "dist-partition", wrongAxis},
      {"max-for-sum", "the largest partial sum is taken for their sum",
       "dist-partition", maxForSum},
      {"slice-before-reduce", "each rank takes its tile before the sum",
       "dist-partition", sliceBeforeReduce},
      {"keep-first-dropped", "all ranks add what one of them should",
       "dist-partition", keepFirstDropped},
      {"reduce-after-non-linear",
       "partial sums go through an operation that is not linear",
       "dist-partition", reduceAfterNonLinear},
      {"partial-twice", "a sum is taken for a partial sum of itself",
       "dist-plan-ops", partialTwice},
      {"exchange-axis-order",
       "an all-to-all counts its axes in the wrong order", "dist-partition",
       exchangeAxisOrder},
      {"permutation-inverted", "tiles move from target to source",
       "dist-partition", permutationInverted},
      {"stale-layout", "a value is read as it lay before it was moved",
       "dist-partition", staleLayout},
      {"window-shifted", "a window begins one element too late",
       "dist-partition", windowShifted},
      {"pad-unmasked", "padding enters a reduction", "dist-partition",
       padUnmasked},
      {"mask-dropped", "one mask of the program is missing", "dist-partition",
       maskDropped},
      {"wrong-identity", "padding is replaced by another operation's identity",
       "dist-partition", wrongIdentity},
      {"mask-by-one", "the last element is masked as if it were padding",
       "dist-partition", maskByOne},
      {"mask-dimension", "padding is masked along another dimension",
       "dist-partition", maskDimension},
      {"indices-unguarded", "indices beyond a table read its padding",
       "dist-partition", indicesUnguarded},
      {"needed-whole",
       "a dimension that an operation needs whole is left split",
       "dist-plan-ops", neededWhole},
      {"loop-reversed", "a loop runs from the last slice to the first",
       "dist-partition", loopReversed},
      {"carry-forgotten", "every iteration begins with the initial values",
       "dist-partition", carryForgotten},
  };
  return bugs;
}

Found cleave::random::huntBug(const Bug &bug, Runner &runner, uint64_t seed,
                              int64_t cases, Style style) {
  for (int64_t number = 0; number < cases; ++number) {
    uint64_t own = caseSeed(seed, number);
    bool planted = false;
    OwningOpRef<ModuleOp> program =
        Generator(runner.context(), own, style).run();
    Outcome outcome = runner.run(*program, own, nullptr, &bug, &planted);
    bool counts = runner.proves()
                      ? outcome.kind == Outcome::Unproven
                      : outcome.kind == Outcome::WrongResult ||
                            outcome.kind == Outcome::WrongCompiled ||
                            outcome.kind == Outcome::ReplicaDiffers;
    if (planted && counts)
      return {number, outcome};
  }
  return {};
}
