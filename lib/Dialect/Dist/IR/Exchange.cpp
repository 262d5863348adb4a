//===- Exchange.cpp - which elements a dist.exchange sends ----------------===//

#include "cleave/Dialect/Dist/IR/Exchange.h"

#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;

std::vector<program::SubAxis>
cleave::dist::subAxes(MeshAttr mesh, ArrayRef<AxisRefAttr> axes) {
  std::vector<program::SubAxis> list;
  for (AxisRefAttr ref : axes)
    for (auto [index, axis] : llvm::enumerate(mesh.getAxes()))
      if (axis.getName() == ref.getName())
        list.push_back({int32_t(index), ref.isWhole() ? 1 : ref.getPre(),
                        axisSize(mesh, ref)});
  return list;
}

program::Exchange
cleave::dist::describeExchange(MeshAttr mesh, ArrayRef<AxisRefAttr> axes,
                               ShardingAttr from, ShardingAttr to,
                               ArrayRef<int64_t> shape, int64_t rounds) {
  program::Exchange exchange;
  exchange.rounds = rounds;
  exchange.shape.assign(shape.begin(), shape.end());
  for (DimShardingAttr dim : from.getDims())
    exchange.from.push_back(subAxes(mesh, dim.getAxes()));
  for (DimShardingAttr dim : to.getDims())
    exchange.to.push_back(subAxes(mesh, dim.getAxes()));
  // `partial` and `toPartial` list the mesh axes over which the value is a
  // partial sum before and after the exchange: an element is the sum over the
  // ranks along these axes. Only the axes of the exchange are listed. Along all
  // other axes, the ranks of a group have the same coordinate, so no sum is
  // computed over them.
  SmallVector<AxisRefAttr> refs(axes);
  llvm::append_range(refs, from.getPartial());
  llvm::append_range(refs, to.getPartial());
  MeshAxes atoms({}, mesh, refs);
  AxisSet over = setOf(atoms.decompose(axes));
  auto within = [&](ArrayRef<AxisRefAttr> partial) {
    return subAxes(
        mesh, atoms.list(setOf(atoms.decompose(partial)) & over).getAxes());
  };
  exchange.partial = within(from.getPartial());
  exchange.toPartial = within(to.getPartial());
  return exchange;
}

program::ExchangePlan
cleave::dist::planExchange(MeshAttr mesh, const program::Exchange &exchange,
                           ArrayRef<int64_t> group) {
  std::vector<program::MeshAxis> axes;
  for (MeshAxisAttr axis : mesh.getAxes())
    axes.push_back({axis.getName().str(), axis.getSize(), ""});
  std::vector<std::vector<int64_t>> coordinates;
  for (int64_t rank : group) {
    SmallVector<int64_t> at = rankCoordinates(mesh, rank);
    coordinates.emplace_back(at.begin(), at.end());
  }
  return program::ExchangePlan(
      program::exchangeTiles(axes, exchange, coordinates));
}

ExchangeCount cleave::dist::countExchange(MeshAttr mesh,
                                          ArrayRef<AxisRefAttr> axes,
                                          ShardingAttr from, ShardingAttr to,
                                          ArrayRef<int64_t> shape,
                                          int64_t rounds) {
  program::Exchange exchange =
      describeExchange(mesh, axes, from, to, shape, rounds);
  ExchangeCount count;
  count.sent.assign(mesh.getNumRanks(), 0);
  count.received = count.sent;
  for (ArrayRef<int64_t> group : allGroups(mesh, axes))
    planExchange(mesh, exchange, group)
        .forTransfers(
            [&](int32_t sender, int32_t receiver, int, int64_t elements) {
              count.sent[group[sender]] += elements;
              count.received[group[receiver]] += elements;
            });
  return count;
}

/// Checks the constraints (EX1) and (EX2) of dist.exchange (DistOps.td):
/// operand and result number `i` have the types of tiles of the global type,
/// under the shardings `from` and `to`.
static LogicalResult verifyTiles(ExchangeOp op, unsigned i, MeshAttr mesh) {
  auto whole =
      dyn_cast<RankedTensorType>(cast<TypeAttr>(op.getGlobal()[i]).getValue());
  if (!whole || !whole.hasStaticShape())
    return op.emitOpError("global type ")
           << op.getGlobal()[i] << " is no tensor of static shape";
  for (auto [sharding, type] : {std::pair(cast<ShardingAttr>(op.getFrom()[i]),
                                          op.getInputs()[i].getType()),
                                std::pair(cast<ShardingAttr>(op.getTo()[i]),
                                          op.getResults()[i].getType())}) {
    if (sharding.getMesh() != op.getMeshAttr())
      return op.emitOpError("sharding ")
             << sharding << " is on another mesh than " << op.getMeshAttr();
    if (failed(verifySharding([&] { return op.emitOpError(); }, sharding, whole,
                              mesh)))
      return failure();
    auto tensor = cast<RankedTensorType>(type);
    if (tensor.getShape() !=
        ArrayRef(tileShape(mesh, sharding, whole.getShape())))
      return op.emitOpError("type ")
             << type << " is no tile of " << whole << " under " << sharding
             << "; expected " << tileType(mesh, sharding, whole);
  }
  if (getElementTypeOrSelf(op.getInputs()[i]) !=
      getElementTypeOrSelf(op.getResults()[i]))
    return op.emitOpError("type ")
           << op.getResults()[i].getType() << " of result " << i
           << " has another element type than the operand";
  return success();
}

/// Checks the constraint (EX3) of dist.exchange (DistOps.td): the axes over
/// which the value is a partial sum before the exchange (in `from`) and after
/// it (in `to`) fit together.
static LogicalResult verifyPartial(ExchangeOp op, unsigned i,
                                   const MeshAxes &axes, const Layout &source,
                                   const Layout &target, AxisSet over) {
  AxisSet kept = source.partial & ~over, keeps = target.partial & ~over;
  if (kept != keeps)
    return op.emitOpError("has operand ")
           << i << " partial over " << axes.list(kept ^ keeps) << " only "
           << (kept & ~keeps ? "before" : "after")
           << " the exchange, and it is not among its axes";
  if (kept && source.kind != target.kind)
    return op.emitOpError("leaves operand ")
           << i << " partial over " << axes.list(kept) << ", but as a "
           << stringifyReduceKind(target.kind) << ", not a "
           << stringifyReduceKind(source.kind);
  if (target.partial & over && target.kind != ReduceKind::Sum)
    return op.emitOpError("makes candidates of a ")
           << stringifyReduceKind(target.kind) << " of operand " << i
           << "; an exchange makes partial sums of a sum only";
  if (target.partial & over && source.partial & over &&
      source.kind != ReduceKind::Sum && op.getRounds() == 1)
    return op.emitOpError("makes partial sums of candidates of a ")
           << stringifyReduceKind(source.kind) << " of operand " << i
           << " in one round, in which no rank has all of them; expected two "
              "rounds";
  return success();
}

/// Checks the constraints (EX3) and (EX4) of dist.exchange (DistOps.td):
/// operand number `i` only has to be moved along axes of the exchange.
static LogicalResult verifyLayouts(ExchangeOp op, unsigned i, MeshAttr mesh) {
  SmallVector<AxisRefAttr> refs(op.getAxes().getAxes());
  auto from = cast<ShardingAttr>(op.getFrom()[i]),
       to = cast<ShardingAttr>(op.getTo()[i]);
  for (ShardingAttr sharding : {from, to}) {
    for (DimShardingAttr dim : sharding.getDims())
      llvm::append_range(refs, dim.getAxes());
    llvm::append_range(refs, sharding.getPartial());
  }
  MeshAxes axes(op.getMeshAttr(), mesh, refs);
  Layout source = axes.layout(from), target = axes.layout(to);
  AxisSet over = setOf(axes.decompose(op.getAxes().getAxes()));
  if (failed(verifyPartial(op, i, axes, source, target, over)))
    return failure();
  auto whole =
      cast<RankedTensorType>(cast<TypeAttr>(op.getGlobal()[i]).getValue());
  if (AxisSet missing =
          axes.exchangeAxes(whole.getShape(), source, target) & ~over)
    return op.emitOpError("moves elements of operand ")
           << i << " over " << axes.list(missing)
           << ", which is not among its axes";
  return success();
}

LogicalResult cleave::dist::verifyExchanged(ExchangeOp op, unsigned i,
                                            MeshAttr mesh) {
  return success(succeeded(verifyTiles(op, i, mesh)) &&
                 succeeded(verifyLayouts(op, i, mesh)));
}
