//===- Variance.cpp - dist-verify-variance --------------------------------===//
//
// A forward dataflow analysis over per-rank programs. It computes the state of
// each value along each mesh axis (equal on all ranks, split into tiles,
// partial, or varying) without trusting the partitioner. The states of
// arguments are declared; all others follow from the rules of operations on
// local shapes.
//
//===----------------------------------------------------------------------===//

#include "cleave/Partition/Verify/Variance.h"
#include "cleave/Partition/Utils/Regions.h"

#include "cleave/Partition/Passes.h"

namespace cleave {
#define GEN_PASS_DEF_DISTVERIFYVARIANCEPASS
#include "cleave/Partition/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

LogicalResult Variance::verify(func::FuncOp func) {
  for (auto [index, argument] : llvm::enumerate(func.getArguments()))
    states[argument] =
        declared(func.getArgAttrOfType<ShardingAttr>(index, kShardingAttrName));
  if (failed(padding.enter(func)) || failed(visitBlock(func.getBody().front())))
    return failure();
  Operation *terminator = func.getBody().front().getTerminator();
  for (auto [index, operand] : llvm::enumerate(terminator->getOperands())) {
    State want = declared(
        func.getResultAttrOfType<ShardingAttr>(index, kShardingAttrName));
    std::string wrong = mismatch(states[operand], want, "its sharding");
    if (!wrong.empty())
      return emitError(operand.getLoc())
             << "result " << index << " of @" << func.getName() << " " << wrong;
  }
  return padding.leave(func);
}

bool Variance::isInvariant(Value value, AxisSet axes) const {
  auto known = states.find(value);
  return known != states.end() && llvm::all_of(listOf(axes), [&](Axis axis) {
           AxisState::Kind kind = known->second[axis].kind;
           return kind == AxisState::Invariant || kind == AxisState::Zero;
         });
}

std::string Variance::name(Axis axis) const { return axisName(mesh, axis); }

State Variance::declared(ShardingAttr sharding) const {
  State state(mesh.count(), AxisState::of(AxisState::Invariant));
  if (!sharding)
    return state;
  Layout layout = mesh.layout(sharding);
  for (auto [dim, axes] : llvm::enumerate(layout.dims))
    splitFurther(state, axes, dim);
  for (Axis axis : listOf(layout.partial))
    state[axis] = AxisState::partial(layout.kind);
  return state;
}

bool Variance::satisfies(const AxisState &have, const AxisState &want) {
  if (have.kind == AxisState::Zero)
    return true;
  if (have.kind == AxisState::Invariant && want.kind == AxisState::Split)
    return have.dims & want.dims;
  // If all ranks have the same value, it is also a valid partial maximum or
  // minimum.
  if (have.kind == AxisState::Invariant && want.kind == AxisState::Partial)
    return want.reduce != ReduceKind::Sum || have.mayBePartial(want.reduce);
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
  // A tile that is computed from the rank's offset has the state Varying and is
  // accepted as a tile (Split). Only the interpreter can check that it is the
  // right one.
  return (have.kind == AxisState::Varying || have.maybe) &&
         want.kind == AxisState::Split;
}

std::string Variance::mismatch(const State &have, const State &want,
                               StringRef source) const {
  for (unsigned axis = 0; axis < mesh.count(); ++axis)
    if (!satisfies(have[axis], want[axis]))
      return ("is " + Twine(have[axis].str()) + " over axis " + name(axis) +
              ", " + source + " says " + want[axis].str())
          .str();
  for (unsigned axis = 0; axis < mesh.count(); ++axis)
    for (Axis minor : listOf(want[axis].majorTo))
      if (contains(have[minor].majorTo, axis))
        return ("is split by axis " + Twine(name(minor)) + " before axis " +
                name(axis) + ", " + source + " says the other way round")
            .str();
  return {};
}

LogicalResult Variance::visitBlock(Block &block) {
  for (Operation &op : block.without_terminator())
    if (failed(visit(&op)))
      return failure();
  return success();
}

/// Returns whether all elements of a constant are equal.
static bool isUniform(Operation *op) {
  auto dense = dyn_cast_or_null<DenseElementsAttr>(op->getAttr("value"));
  return dense && dense.isSplat();
}

LogicalResult Variance::visit(Operation *op) {
  if (isLoopOrBranch(op))
    return visitRegions(op);
  if (auto scan = dyn_cast<nn::ScanOp>(op))
    return visitScan(scan);
  if (op->getNumRegions() != 0)
    return op->emitOpError("has regions that are not understood");
  if (auto collective = dyn_cast<CollectiveOpInterface>(op)) {
    Axes axes = mesh.decompose(collective.getAxes().getAxes());
    return failure(failed(visitCollective(op, axes)) ||
                   failed(padding.visitCollective(op, axes)));
  }
  if (isa<dist::SliceOp, KeepFirstOp, AxisIndexOp, TileOffsetOp>(op))
    return visitPlace(op);
  if (op->hasTrait<OpTrait::ConstantLike>()) {
    for (Value result : op->getResults()) {
      AxisState state =
          AxisState::of(AxisState::Invariant, isUniform(op) ? ~uint64_t(0) : 0);
      if (isZeroConstant(result))
        state = AxisState::of(AxisState::Zero);
      states[result] = State(mesh.count(), state);
    }
    padding.visitConstant(op);
    return success();
  }
  return visitRule(op);
}

LogicalResult Variance::visitRule(Operation *op) {
  ShardingRule rule = ShardingRule::of(op);
  for (Value result : op->getResults())
    states[result] = State(mesh.count());
  for (unsigned axis = 0; axis < mesh.count(); ++axis)
    if (failed(transfer(op, rule, axis)))
      return failure();
  if (failed(transferOrder(op, rule)))
    return failure();
  return padding.visit(op, rule);
}

namespace {

struct DistVerifyVariancePass
    : cleave::impl::DistVerifyVariancePassBase<DistVerifyVariancePass> {
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
