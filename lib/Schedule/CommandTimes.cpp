// Modelled times of commands; see CommandTimes.h.

#include "CommandTimes.h"

#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Memory/BoundaryTable.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::schedule;

/// Returns the mesh axes (or sub-axes) that a collective communicates over.
static SmallVector<dist::AxisRefAttr> axesOf(dist::MeshAttr mesh,
                                             rt::CollectiveOp collective) {
  SmallVector<dist::AxisRefAttr> refs;
  ArrayRef<int64_t> group = collective.getGroup();
  for (; !group.empty(); group = group.drop_front(3))
    refs.push_back(dist::AxisRefAttr::get(mesh.getContext(),
                                          mesh.getAxes()[group[0]].getName(),
                                          group[1], group[2]));
  return refs;
}

FailureOr<CommandTimes> CommandTimes::load(ModuleOp module,
                                           const std::string &file) {
  FailureOr<Cluster> cluster = cost::loadCluster(module, file);
  if (failed(cluster))
    return failure();
  auto meshes = module.getOps<dist::MeshOp>();
  if (!llvm::hasSingleElement(meshes))
    return module.emitError("the module has ")
           << llvm::range_size(meshes)
           << " meshes; expected the one over which its collectives go";
  dist::MeshOp meshOp = *meshes.begin();
  ArrayRef<dist::MeshAxisAttr> axes = meshOp.getMesh().getAxes();
  SmallVector<dist::AxisRefAttr> refs;
  WalkResult result = module.walk([&](rt::CollectiveOp op) {
    for (ArrayRef<int64_t> part = op.getGroup(); !part.empty();
         part = part.drop_front(3))
      if (part[0] >= int64_t(axes.size()) ||
          axes[part[0]].getSize() % (part[1] * part[2]) != 0) {
        op.emitOpError("goes over part (")
            << part[1] << ")" << part[2] << " of axis " << part[0]
            << ", which the mesh @" << meshOp.getSymName() << " does not have";
        return WalkResult::interrupt();
      }
    llvm::append_range(refs, axesOf(meshOp.getMesh(), op));
    return WalkResult::advance();
  });
  if (result.wasInterrupted())
    return failure();
  dist::MeshAxes mesh(FlatSymbolRefAttr::get(meshOp.getSymNameAttr()),
                      meshOp.getMesh(), refs);
  auto links = cost::LinkModel::of(module, mesh, *cluster);
  return CommandTimes(std::move(mesh), std::move(links), std::move(*cluster));
}

static double bytesOfAll(ValueRange values) {
  double bytes = 0;
  for (Value value : values)
    if (isa<RankedTensorType>(value.getType()))
      bytes += double(bytesOf(value.getType()));
  return bytes;
}

double CommandTimes::of(Operation *op) const {
  if (auto collective = dyn_cast<rt::CollectiveOp>(op))
    return secondsOf(collective);
  if (isa<rt::AliasOp, rt::ConditionOp, rt::WaitOp>(op))
    return 0;
  if (auto repeat = dyn_cast<rt::RepeatOp>(op)) {
    double trip = 0;
    for (Operation &inner : repeat.lookupBody()->getRegion(0).front())
      trip += of(&inner);
    return double(repeat.getTrips()) * trip;
  }
  auto command = dyn_cast<rt::CommandOpInterface>(op);
  if (!command)
    return 0;
  if (int64_t flops = command.getFlops())
    return cluster.matmulSeconds(double(flops));
  double bytes = bytesOfAll(op->getOperands()) + bytesOfAll(op->getResults());
  if (Value scratch = command.getScratchResult())
    bytes -= bytesOfAll(scratch);
  return bytes / cluster.memoryBytesPerSecond;
}

double CommandTimes::secondsOf(rt::CollectiveOp op) const {
  dist::AxisSet group = 0;
  for (dist::AxisRefAttr ref : axesOf(mesh.mesh(), op))
    for (dist::Axis axis : mesh.decompose(ref))
      group |= dist::AxisSet(1) << axis;
  double in = bytesOfAll(op.getInputs()), out = bytesOfAll(op.getValues());
  switch (op.getKind()) {
  case rt::CollectiveKind::AllReduce:
    return links.allReduce(group, out);
  case rt::CollectiveKind::AllGather:
    return links.allGather(group, out);
  case rt::CollectiveKind::ReduceScatter:
    return links.reduceScatter(group, in);
  case rt::CollectiveKind::AllToAll:
  case rt::CollectiveKind::AllToAllV:
    return links.allToAll(group, in);
  case rt::CollectiveKind::Permute:
  case rt::CollectiveKind::Broadcast:
    return links.permute(group, out);
  case rt::CollectiveKind::Exchange:
    return links.exchange(group, out, double(op.getGroupSize() - 1));
  }
  llvm_unreachable("a kind of collective");
}
