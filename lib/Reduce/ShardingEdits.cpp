// Edits of shardings and meshes; see ShardingEdits.h.

#include "ShardingEdits.h"

#include "Edits.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::reduce;

static SmallVector<ConstrainOp> constraintsOf(ModuleOp module) {
  SmallVector<ConstrainOp> found;
  module.walk<WalkOrder::PreOrder>(
      [&](ConstrainOp op) { found.push_back(op); });
  return found;
}

SmallVector<MeshOp> reduce::meshesOf(ModuleOp module) {
  return llvm::to_vector(module.getOps<MeshOp>());
}

size_t reduce::countSlots(ModuleOp module) {
  return partition::portsOf(module).size() + constraintsOf(module).size();
}

/// Returns the sharding of argument, result or constraint `number`, in the
/// order of countSlots(); null if it has none. If `set` is given, first
/// replaces the sharding by `set`.
static ShardingAttr slot(ModuleOp module, size_t number,
                         std::optional<ShardingAttr> set = {}) {
  SmallVector<partition::Port> ports = partition::portsOf(module);
  if (number < ports.size()) {
    if (set)
      setAttr(ports[number], kShardingAttrName, *set);
    return ports[number].sharding();
  }
  SmallVector<ConstrainOp> constraints = constraintsOf(module);
  if (number - ports.size() >= constraints.size())
    return {}; // it went with an edit
  ConstrainOp constrain = constraints[number - ports.size()];
  if (set && *set)
    constrain.setShardingAttr(*set);
  return constrain.getSharding();
}

/// Returns the sharding without the axis references for which `drop` is true.
static ShardingAttr without(ShardingAttr sharding,
                            llvm::function_ref<bool(AxisRefAttr)> drop) {
  auto kept = [&](ArrayRef<AxisRefAttr> axes) {
    SmallVector<AxisRefAttr> result;
    for (AxisRefAttr axis : axes)
      if (!drop(axis))
        result.push_back(axis);
    return result;
  };
  MLIRContext *context = sharding.getContext();
  SmallVector<DimShardingAttr> dims;
  for (DimShardingAttr dim : sharding.getDims())
    dims.push_back(
        DimShardingAttr::get(context, kept(dim.getAxes()), dim.getIsOpen()));
  return ShardingAttr::get(
      context, sharding.getMesh(), dims, sharding.getPartialKind(),
      kept(sharding.getPartial()), kept(sharding.getReplicated()),
      sharding.getPriority());
}

static SmallVector<AxisRefAttr> referencesOf(ShardingAttr sharding) {
  SmallVector<AxisRefAttr> references;
  for (DimShardingAttr dim : sharding.getDims())
    llvm::append_range(references, dim.getAxes());
  llvm::append_range(references, sharding.getPartial());
  llvm::append_range(references, sharding.getReplicated());
  return references;
}

bool reduce::dropShardings(ModuleOp module, size_t begin, size_t end) {
  SmallVector<partition::Port> ports = partition::portsOf(module);
  bool any = false;
  for (size_t i = begin; i < std::min(end, ports.size()); ++i)
    if (ports[i].sharding()) {
      setAttr(ports[i], kShardingAttrName, {});
      any = true;
    }
  return any;
}

bool reduce::simplifySharding(ModuleOp module, size_t number) {
  ShardingAttr before = slot(module, number);
  if (!before)
    return false;
  SmallVector<DimShardingAttr> dims;
  for (DimShardingAttr dim : before.getDims())
    dims.push_back(
        DimShardingAttr::get(before.getContext(), dim.getAxes(), false));
  auto after = ShardingAttr::get(before.getContext(), before.getMesh(), dims,
                                 before.getPartialKind(), before.getPartial(),
                                 before.getReplicated(), 0);
  slot(module, number, after);
  return after != before;
}

bool reduce::dropReference(ModuleOp module, size_t number, size_t reference) {
  ShardingAttr before = slot(module, number);
  if (!before)
    return false;
  SmallVector<AxisRefAttr> references = referencesOf(before);
  if (reference >= references.size())
    return false;
  slot(module, number, without(before, [&](AxisRefAttr axis) {
         return axis == references[reference];
       }));
  return true;
}

bool reduce::dropAxis(ModuleOp module, size_t mesh, size_t axis) {
  SmallVector<MeshOp> meshes = meshesOf(module);
  if (mesh >= meshes.size())
    return false;
  MeshOp op = meshes[mesh];
  SmallVector<MeshAxisAttr> axes(op.getMesh().getAxes());
  if (axes.size() == 1 || axis >= axes.size())
    return false;
  StringAttr gone = axes[axis].getName();
  axes.erase(axes.begin() + axis);
  op.setMeshAttr(MeshAttr::get(module.getContext(), axes));
  if (ArrayAttr links = op.getLinksAttr()) {
    SmallVector<Attribute> kept(links.getValue());
    kept.erase(kept.begin() + axis);
    op.setLinksAttr(ArrayAttr::get(module.getContext(), kept));
  }
  if (std::optional<ArrayRef<int64_t>> within = op.getWithin()) {
    SmallVector<int64_t> kept(*within);
    kept.erase(kept.begin() + axis);
    op.setWithin(ArrayRef<int64_t>(kept));
  }
  for (size_t number = 0; number < countSlots(module); ++number)
    if (ShardingAttr sharding = slot(module, number);
        sharding && sharding.getMesh().getValue() == op.getSymName())
      slot(module, number, without(sharding, [&](AxisRefAttr reference) {
             return reference.getName() == gone;
           }));
  return true;
}
