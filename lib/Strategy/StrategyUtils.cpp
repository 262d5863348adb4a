// Helpers shared by the strategies.

#include "StrategyUtils.h"

#include "cleave/Interfaces/BoundaryAttrs.h"
#include "cleave/Strategy/Passes.h"
#include "cleave/io/Pattern.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::strategy;

FailureOr<dist::MeshOp> strategy::meshWithAxis(ModuleOp module,
                                               StringRef axis) {
  auto meshes = llvm::to_vector(module.getOps<dist::MeshOp>());
  if (meshes.size() != 1)
    return module.emitError("expected one dist.mesh, found ") << meshes.size();
  dist::MeshOp mesh = meshes.front();
  for (dist::MeshAxisAttr candidate : mesh.getMesh().getAxes())
    if (candidate.getName() == axis)
      return mesh;
  return mesh.emitOpError("has no axis '") << axis << "' to split over";
}

bool strategy::holdsSamples(std::optional<Role> role) {
  return isOneOf(role, {Role::Tokens, Role::Labels, Role::SampleIds,
                        Role::Input, Role::Output});
}

bool strategy::crossesStages(std::optional<Role> role) {
  return isOneOf(role, {Role::Activation, Role::Cotangent});
}

dist::ShardingAttr strategy::shardingOf(DictionaryAttr attrs) {
  return attrs ? attrs.getAs<dist::ShardingAttr>(dist::ShardingAttr::kAttrName)
               : dist::ShardingAttr();
}

dist::ShardingAttr
strategy::closedSharding(dist::MeshOp mesh, const Axes &axes,
                         ArrayRef<dist::AxisRefAttr> partial) {
  MLIRContext *context = mesh.getContext();
  SmallVector<dist::DimShardingAttr> dims;
  for (ArrayRef<dist::AxisRefAttr> dim : axes)
    dims.push_back(dist::DimShardingAttr::get(context, dim, /*isOpen=*/false));
  return dist::ShardingAttr::get(context, FlatSymbolRefAttr::get(mesh), dims,
                                 dist::ReduceKind::Sum, partial, {}, 0);
}

Axes strategy::axesOf(dist::ShardingAttr sharding, int64_t rank) {
  Axes axes(rank);
  if (sharding)
    for (auto [dim, dimSharding] : llvm::enumerate(sharding.getDims()))
      axes[dim].assign(dimSharding.getAxes().begin(),
                       dimSharding.getAxes().end());
  return axes;
}

bool strategy::matchesWhole(StringRef pattern, StringRef name) {
  return matchesPattern(pattern, name);
}

bool strategy::hasOverride(ModuleOp module, StringRef parameter) {
  auto list = module->getAttrOfType<ArrayAttr>(kShardAttr);
  return list && llvm::any_of(list, [&](Attribute attr) {
           return matchesWhole(cast<nn::ShardAttr>(attr).getMatch().getValue(),
                               parameter);
         });
}

void strategy::remarkOnPadding(Location loc, StringRef parameter,
                               RankedTensorType type, const Axes &axes,
                               dist::MeshAttr mesh) {
  for (auto [dim, list] : llvm::enumerate(axes)) {
    int64_t size = type.getDimSize(dim), parts = dist::axesSize(mesh, list);
    if (size % parts == 0)
      continue;
    SmallVector<dist::AxisRefAttr> splitting =
        llvm::filter_to_vector(list, [&](dist::AxisRefAttr axis) {
          return dist::axisSize(mesh, axis) > 1;
        });
    InFlightDiagnostic remark = emitRemark(loc, "parameter '");
    remark << parameter << "' of type " << type << ": dimension " << dim
           << " does not divide by the " << parts << " ranks of "
           << (splitting.size() == 1 ? "axis " : "axes ");
    llvm::interleaveComma(splitting, remark, [&](dist::AxisRefAttr axis) {
      remark << "'" << axis.getName().getValue();
      if (!axis.isWhole())
        remark << ":(" << axis.getPre() << ")" << axis.getSize();
      remark << "'";
    });
    remark << ", it is padded to " << dist::tileSize(size, parts) * parts;
  }
}

void strategy::setBoundaryShardings(
    ModuleOp module,
    llvm::function_ref<dist::ShardingAttr(RankedTensorType, DictionaryAttr)>
        visit) {
  for (auto func : module.getOps<func::FuncOp>()) {
    if (func.isDeclaration())
      continue;
    BoundaryAttrs boundary(func);
    for (unsigned i = 0; i < func.getNumArguments(); ++i)
      if (auto type = dyn_cast<RankedTensorType>(func.getArgumentTypes()[i]))
        if (auto sharding = visit(type, func.getArgAttrDict(i)))
          boundary.setArgument(i, dist::ShardingAttr::kAttrName, sharding);
    for (unsigned i = 0; i < func.getNumResults(); ++i)
      if (auto type = dyn_cast<RankedTensorType>(func.getResultTypes()[i]))
        if (auto sharding = visit(type, func.getResultAttrDict(i)))
          boundary.setResult(i, dist::ShardingAttr::kAttrName, sharding);
    boundary.apply();
  }
}
