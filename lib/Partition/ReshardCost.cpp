//===- ReshardCost.cpp - what the moves of a reshard cost -----------------===//
//
// Of an exchange only the amounts are needed here, not the boxes: a rank
// receives its target tile less what it holds; those that hold one source tile
// share what others need of it, which is the tile once for every rank group
// that covers the tensor, less what its holders keep.
//
//===----------------------------------------------------------------------===//

#include "ReshardCost.h"
#include <cmath>

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

namespace {

/// The ranks of the axes that two layouts use, with the tile of each.
class Ranks {
public:
  Ranks(const MeshAxes &mesh, AxisSet active) : mesh(mesh), axes(listOf(active)) {
    strides.resize(axes.size());
    for (size_t i = axes.size(); i-- > 0;) {
      strides[i] = count;
      count *= mesh.size(axes[i]);
    }
  }

  /// The position over `list` of every rank.
  void positions(ArrayRef<Axis> list, SmallVectorImpl<int64_t> &at) const {
    at.assign(count, 0);
    for (Axis axis : list) {
      int64_t size = mesh.size(axis), stride = strides[llvm::find(axes, axis) - axes.begin()];
      for (int64_t rank = 0; rank < count; ++rank)
        at[rank] = at[rank] * size + rank / stride % size;
    }
  }

  int64_t count = 1;

private:
  const MeshAxes &mesh;
  Axes axes;
  SmallVector<int64_t, 8> strides;
};

} // namespace

ExchangeEstimate cleave::partition::estimateExchange(const MeshAxes &mesh,
                                                     ArrayRef<int64_t> shape, const Layout &from,
                                                     const Layout &to) {
  AxisSet reduced = from.partial & ~to.partial;
  // Dimensions that are cut alike in both scale everything, unless uneven.
  Ranks ranks(mesh, from.used() | to.split());
  int64_t n = ranks.count, addends = mesh.size(reduced);
  SmallVector<int64_t, 64> own(n, 1), wanted(n, 1), source(n, 0), sourceSize(n, 1), peers(n, 1);
  SmallVector<int64_t, 64> a, b;
  int64_t sources = 1;
  for (auto [dim, extent] : llvm::enumerate(shape)) {
    int64_t waysA = mesh.size(from.dims[dim]), waysB = mesh.size(to.dims[dim]);
    if (waysA == 1 && waysB == 1) {
      for (int64_t rank = 0; rank < n; ++rank) {
        own[rank] *= extent;
        wanted[rank] *= extent;
        sourceSize[rank] *= extent;
      }
      continue;
    }
    int64_t tileA = std::max<int64_t>(tileSize(extent, waysA), 1);
    int64_t tileB = std::max<int64_t>(tileSize(extent, waysB), 1);
    ranks.positions(from.dims[dim], a);
    ranks.positions(to.dims[dim], b);
    for (int64_t rank = 0; rank < n; ++rank) {
      int64_t lowA = std::min(a[rank] * tileA, extent), highA = std::min(lowA + tileA, extent);
      int64_t lowB = std::min(b[rank] * tileB, extent), highB = std::min(lowB + tileB, extent);
      own[rank] *= std::max<int64_t>(std::min(highA, highB) - std::max(lowA, lowB), 0);
      wanted[rank] *= highB - lowB;
      sourceSize[rank] *= highA - lowA;
      source[rank] = source[rank] * waysA + a[rank];
      if (highB > lowB)
        peers[rank] *= (highB - 1) / tileA - lowB / tileA + 1;
    }
    sources *= waysA;
  }
  // Those that hold the same tile of the same addend.
  ranks.positions(listOf(from.partial), a);
  sources *= mesh.size(from.partial);
  SmallVector<int64_t, 64> kept(sources, 0), size(sources, 0);
  ExchangeEstimate estimate;
  for (int64_t rank = 0; rank < n; ++rank) {
    int64_t received = addends * wanted[rank] - own[rank];
    estimate.mostReceived = std::max<double>(estimate.mostReceived, received);
    estimate.received += received;
    if (received > 0)
      estimate.peers = std::max(estimate.peers, addends * peers[rank] - (own[rank] > 0));
    int64_t at = source[rank] * mesh.size(from.partial) + a[rank];
    kept[at] += own[rank];
    size[at] = sourceSize[rank];
  }
  estimate.received /= n;
  // All target tiles cover the tensor, each this often.
  int64_t targets = 1;
  for (const Axes &axes : to.dims)
    targets *= mesh.size(axes);
  int64_t covers = n / targets / mesh.size(from.partial & to.partial), holders = n / sources;
  for (int64_t at = 0; at < sources; ++at)
    estimate.mostSent =
        std::max(estimate.mostSent, double(covers * size[at] - kept[at]) / holders);
  return estimate;
}

MoveCost cleave::partition::costOf(const MeshAxes &mesh, const cost::LinkModel &model,
                                   ArrayRef<int64_t> shape, int64_t elementBytes, const Layout &at,
                                   const Move &move) {
  auto elements = [&](const Layout &layout) {
    double count = 1;
    for (int64_t extent : mesh.tile(layout, shape))
      count *= extent;
    return count;
  };
  int64_t n = mesh.size(move.axes);
  AxisSet group = setOf(move.axes);
  double width = elementBytes;
  switch (move.kind) {
  case Move::AllReduce: {
    // Chunks are whole elements, and the first rank's is a full one.
    double tile = elements(at), chunk = std::ceil(tile / n);
    double padded = n > 1 ? (tile + (n - 2) * chunk) * n / (2 * (n - 1)) : tile;
    return {model.allReduce(group, width * padded), 2 * (n - 1) * tile / n};
  }
  case Move::ReduceScatter: {
    double tile = elements(move.after);
    return {model.reduceScatter(group, width * tile * n), (n - 1) * tile};
  }
  case Move::AllGather: {
    double tile = elements(at);
    return {model.allGather(group, width * tile * n), (n - 1) * tile};
  }
  case Move::AllToAll: {
    // The dimension that is split is padded first.
    double tile = 1;
    for (auto [dim, extent] : llvm::enumerate(mesh.tile(at, shape)))
      tile *= int64_t(dim) == move.dim ? n * mesh.tile(move.after, shape)[dim] : extent;
    return {model.allToAll(group, width * tile), (n - 1) * tile / n};
  }
  case Move::Permute: {
    double tile = elements(at);
    bool even = true;
    for (auto [extent, axes] : llvm::zip_equal(shape, at.dims))
      even &= extent % mesh.size(axes) == 0;
    // Padding is moved, too.
    double received = even ? estimateExchange(mesh, shape, at, move.after).received : tile;
    return {model.permute(group, width * tile), received};
  }
  case Move::Exchange: {
    ExchangeEstimate moved = estimateExchange(mesh, shape, at, move.after);
    // Those who receive read; what others hold as well they send in equal parts.
    return {model.exchange(group, width * moved.mostReceived, moved.peers), moved.received};
  }
  case Move::KeepFirst:
  case Move::Slice:
  case Move::Embed:
    return {};
  }
  llvm_unreachable("unknown move");
}
