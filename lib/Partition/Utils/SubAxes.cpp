//===- SubAxes.cpp - checks that sub-axes fit together --------------------===//

#include "cleave/Dialect/Dist/IR/Sharding.h"
#include "cleave/Partition/Utils/Describe.h"
#include "cleave/Partition/Utils/PortTable.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::partition;

namespace {

/// A use of a sub-axis in the sharding of a tensor, with the tensor's name for
/// messages.
struct Use {
  dist::AxisRefAttr axis;
  std::string tensor;
  Location loc;
};

} // namespace

LogicalResult cleave::partition::verifySubAxes(ModuleOp module) {
  auto meshes = module.getOps<dist::MeshOp>();
  if (meshes.empty())
    return success();
  dist::MeshAttr mesh = (*meshes.begin()).getMesh();
  SmallVector<Use> uses;
  llvm::SetVector<dist::AxisRefAttr> seen;
  auto add = [&](Attribute attr, Location loc,
                 llvm::function_ref<std::string()> tensor) {
    if (attr)
      attr.walk([&](dist::AxisRefAttr axis) {
        if (!axis.isWhole() && seen.insert(axis))
          uses.push_back({axis, tensor(), loc});
      });
  };
  for (const Port &port : portsOf(module))
    add(port.sharding(), port.loc(), [&] { return describe(port); });
  module.walk([&](dist::ConstrainOp op) {
    add(op.getSharding(), op.getLoc(),
        [] { return std::string("the value of dist.constrain"); });
  });
  module.walk([&](Operation *op) {
    if (auto given = op->getAttrOfType<ArrayAttr>(dist::kShardingAttrName))
      for (auto [result, sharding] : llvm::zip(op->getResults(), given))
        add(sharding, op->getLoc(),
            [result = result] { return describe(result); });
  });
  for (auto [index, use] : llvm::enumerate(uses))
    for (const Use &other : ArrayRef<Use>(uses).take_front(index))
      if (dist::crosses(mesh, other.axis, use.axis)) {
        InFlightDiagnostic error = emitError(use.loc);
        error << dist::explainCrossing(mesh, other.axis, other.tensor, use.axis,
                                       use.tensor);
        error.attachNote(other.loc) << other.tensor << " is here";
        return error;
      }
  return success();
}
