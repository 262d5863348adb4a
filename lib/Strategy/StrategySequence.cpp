// strategy-sequence: splits positions inside attention, by heads (Ulysses) or
// rings.

#include "AttentionPins.h"
#include "StrategyUtils.h"
#include "TableGradients.h"
#include "cleave/Dialect/Pipe/IR/Pipe.h"
#include "cleave/Strategy/Passes.h"

namespace cleave {
#define GEN_PASS_DEF_STRATEGYSEQUENCEPASS
#include "cleave/Strategy/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::strategy;

namespace {

struct StrategySequencePass
    : cleave::impl::StrategySequencePassBase<StrategySequencePass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<dist::AxisRefAttr> ringAxis = axisOf(ring);
    FailureOr<dist::AxisRefAttr> ulyssesAxis = axisOf(ulysses);
    if (failed(ringAxis) || failed(ulyssesAxis))
      return signalPassFailure();
    if (!*ringAxis && !*ulyssesAxis)
      return;
    AttentionAxes axes = {*ringAxis, *ulyssesAxis, {}};
    for (const std::string &name : featureAxes)
      axes.features.push_back(dist::AxisRefAttr::get(&getContext(), name));
    bool any = false;
    llvm::SmallDenseSet<int64_t> unsplit;
    for (auto func : module.getOps<func::FuncOp>()) {
      nn::PositionFlow flow(func);
      if (!flow.any())
        continue;
      any = true;
      if (failed(checkForm(func, flow)) ||
          failed(pinAttention(func, mesh, flow, axes, unsplit)))
        return signalPassFailure();
      scatterTableGradients(func, flow);
    }
    std::optional<pipe::StageOf> stage = pipe::stageOf(module);
    // A single pipeline stage need not have positions. An example is a stage
    // with only an encoder of a fixed length.
    if (any || (stage && stage->stage > 0) ||
        module->hasAttr(nn::kPositionsAttr))
      return;
    module.emitError(
        "the module has no dimension of positions to split over axis '")
        << (ring.empty() ? ulysses : ring)
        << "': sequence parallelism needs tokens, or an input, of shape "
           "[batch, sequence, ...]; of several, data.tokens names the one";
    signalPassFailure();
  }

  /// Returns the mesh axis of this name, or null if the name is empty or the
  /// axis has size 1.
  FailureOr<dist::AxisRefAttr> axisOf(StringRef name) {
    if (name.empty())
      return dist::AxisRefAttr();
    FailureOr<dist::MeshOp> found = meshWithAxis(getOperation(), name);
    if (failed(found))
      return failure();
    mesh = *found;
    auto axis = dist::AxisRefAttr::get(&getContext(), name);
    return dist::axisSize(mesh.getMesh(), axis) > 1 ? axis
                                                    : dist::AxisRefAttr();
  }

  /// Reports attention that was not fused into one operation.
  LogicalResult checkForm(func::FuncOp func, const nn::PositionFlow &flow) {
    for (Operation &op : func.getBody().front().without_terminator()) {
      ShardingRule rule = ShardingRule::of(&op);
      for (auto [value, dims] : llvm::zip(op.getOperands(), rule.operands)) {
        bool isRow = false;
        int64_t positions = 0;
        for (auto [dim, made] : llvm::enumerate(dims)) {
          if (made.size() != 1 || !flow.isPosition(value, dim))
            continue;
          ++positions;
          isRow |= isJoint(rule.factors[made[0]]);
        }
        if (isRow && positions > 1)
          return op.emitOpError("combines the scores ")
                 << value.getType() << " of " << flow.size()
                 << " positions with each other: this attention is not of a "
                    "form that becomes one operation (a bias that is trained, "
                    "for example), and sequence kinds ring and ulysses split "
                    "no other; use kind megatron, or tensor parallelism alone";
      }
    }
    return success();
  }

  dist::MeshOp mesh;
};

} // namespace
