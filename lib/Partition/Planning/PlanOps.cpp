//===- PlanOps.cpp - dist-plan-ops ----------------------------------------===//
//
// Chooses the axes of each factor and the axes that stay partial, operation by
// operation in program order (OpPlanner). So the layouts of an operation's
// operands are already planned; propagation has set the requested layouts of
// its results.
//
//===----------------------------------------------------------------------===//

#include "OpPlanner.h"
#include "PlanRemarks.h"
#include "cleave/Partition/Passes.h"
#include "cleave/Partition/Utils/Regions.h"

namespace cleave {
#define GEN_PASS_DEF_DISTPLANOPSPASS
#include "cleave/Partition/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

namespace {

struct DistPlanOpsPass : cleave::impl::DistPlanOpsPassBase<DistPlanOpsPass> {
  using Base::Base;

  void runOnOperation() override {
    FailureOr<cost::Machine> machine =
        cost::Machine::load(getOperation(), cluster);
    if (failed(machine))
      return signalPassFailure();
    // Latency is left out of the model: dist-bucket later merges collectives
    // that are ready together, and it is not known here which of them pays the
    // latency. The choice then does not depend on the size of the model.
    const cost::Machine ideal = machine->withoutLatency(getOperation());
    const MeshAxes &mesh = ideal.mesh;
    ReshardPlanner reshards(mesh, ideal.links);
    for (auto func : getOperation().getOps<func::FuncOp>()) {
      OpPlanner planner(mesh, ideal.cluster, ideal.links, reshards);
      if (!func.isExternal() && failed(planFunction(func, mesh, planner)))
        return signalPassFailure();
      if (remarks && !func.isExternal())
        reportPartials(func, mesh);
    }
  }

  LogicalResult planFunction(func::FuncOp func, const MeshAxes &mesh,
                             OpPlanner &planner) {
    for (auto [index, argument] : llvm::enumerate(func.getArguments())) {
      auto type = dyn_cast<RankedTensorType>(argument.getType());
      if (!type)
        continue;
      auto sharding =
          func.getArgAttrOfType<ShardingAttr>(index, kShardingAttrName);
      planner.setLayout(argument, sharding ? mesh.layout(sharding)
                                           : Layout(type.getRank()));
    }
    return planBlock(func.getBody().front(), mesh, planner);
  }

  /// Plans a loop or branch. `asked` has the layout that is requested for each
  /// result. The value that the loop carries, or that the branches yield, for
  /// this result has the same layout inside of the regions.
  LogicalResult planRegions(Operation *op, ArrayRef<Layout> asked,
                            const MeshAxes &mesh, OpPlanner &planner) {
    SmallVector<Attribute> shardings;
    for (auto [value, layout] : llvm::zip_equal(carriedBy(op), asked)) {
      if (value.argument)
        planner.setLayout(value.argument, layout);
      planner.setLayout(value.result, layout);
      shardings.push_back(mesh.sharding(layout));
    }
    op->setAttr(kShardingAttrName, ArrayAttr::get(&getContext(), shardings));
    for (Region &region : op->getRegions())
      if (!region.empty() && failed(planBlock(region.front(), mesh, planner)))
        return failure();
    return success();
  }

  LogicalResult planBlock(Block &block, const MeshAxes &mesh,
                          OpPlanner &planner) {
    for (Operation &op : block.without_terminator()) {
      if (partition::isScalarOp(&op) || partition::isGenerator(&op) ||
          op.getNumResults() == 0)
        continue;
      if (!llvm::all_of(op.getResultTypes(), llvm::IsaPred<RankedTensorType>))
        return op.emitOpError(
            "has a result that is no tensor and cannot be partitioned");
      auto given = op.getAttrOfType<ArrayAttr>(kShardingAttrName);
      SmallVector<Layout> asked;
      for (auto [index, type] : llvm::enumerate(op.getResultTypes()))
        asked.push_back(given ? mesh.layout(cast<ShardingAttr>(given[index]))
                              : Layout(cast<RankedTensorType>(type).getRank()));
      if (isLoopOrBranch(&op)) {
        for (Layout &layout : asked)
          layout = layout.reduced();
        if (failed(planRegions(&op, asked, mesh, planner)))
          return failure();
        continue;
      }
      // A constraint only reshards its operand.
      if (isa<ConstrainOp>(op)) {
        planner.setLayout(op.getResult(0), asked[0]);
        continue;
      }
      ShardingRule rule = ruleOf(&op);
      OpChoice choice = planner.choose(&op, rule, asked);
      SmallVector<Attribute> shardings, factors;
      for (auto [index, result] : llvm::enumerate(op.getResults())) {
        // If the splits of a result differ from the requested ones, it is
        // resharded at once. A partial result stays partial until a reader
        // needs it reduced.
        Layout kept = planner.produced(rule, choice, index);
        if (kept.dims != asked[index].dims &&
            !OpPlanner::isReducedLater(result, kept, asked[index])) {
          AxisSet split = asked[index].split();
          kept.dims = asked[index].dims;
          kept.partial &= ~split;
        }
        shardings.push_back(mesh.sharding(kept));
        planner.setLayout(result, kept);
      }
      for (const Axes &axes : choice.factors)
        factors.push_back(mesh.list(axes));
      Builder builder(&getContext());
      op.setAttr(kShardingAttrName, builder.getArrayAttr(shardings));
      op.setAttr(kPlanAttrName,
                 PlanAttr::get(&getContext(), mesh.list(choice.carry),
                               builder.getArrayAttr(factors)));
    }
    return success();
  }
};

} // namespace
