//===- Exchange.cpp - what an exchange moves ------------------------------===//

#include "cleave/Dialect/Dist/IR/Exchange.h"

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
  // What stays partial is alike on all members.
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
