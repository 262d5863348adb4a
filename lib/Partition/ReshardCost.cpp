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
      for (int64_t rank = 0; rank < count;)
        for (int64_t coordinate = 0; coordinate < size; ++coordinate)
          for (int64_t i = 0; i < stride; ++i, ++rank)
            at[rank] = at[rank] * size + coordinate;
    }
  }

  int64_t count = 1;

private:
  const MeshAxes &mesh;
  Axes axes;
  SmallVector<int64_t, 8> strides;
};

} // namespace

ExchangeEstimate cleave::partition::estimateExchange(const MeshAxes &mesh, ArrayRef<int64_t> shape,
                                                     const Layout &from, const Layout &to,
                                                     AxisSet axes, int64_t rounds) {
  AxisSet reduced = from.partial & axes, made = to.partial & axes;
  AxisSet splits = from.split() | to.split();
  // In two rounds all members take part. Dimensions that are cut alike in both
  // scale everything, unless uneven.
  AxisSet active = splits | reduced | made | (rounds > 1 ? axes : 0);
  Ranks ranks(mesh, active);
  int64_t n = ranks.count, p = mesh.size(reduced);
  SmallVector<int64_t, 64> own(n, 1), wanted(n, 1), source(n, 0), target(n, 0), sourceSize(n, 1);
  SmallVector<int64_t, 64> peers(n, 1), a, b;
  int64_t sources = 1, targets = 1;
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
    SmallVector<int64_t, 64> overlapped(waysB, 1);
    if (waysA > 1)
      for (int64_t tile = 0; tile < waysB && tile * tileB < extent; ++tile)
        overlapped[tile] =
            (std::min((tile + 1) * tileB, extent) - 1) / tileA - tile * tileB / tileA + 1;
    for (int64_t rank = 0; rank < n; ++rank) {
      int64_t lowA = std::min(a[rank] * tileA, extent), highA = std::min(lowA + tileA, extent);
      int64_t lowB = std::min(b[rank] * tileB, extent), highB = std::min(lowB + tileB, extent);
      own[rank] *= std::max<int64_t>(std::min(highA, highB) - std::max(lowA, lowB), 0);
      wanted[rank] *= highB - lowB;
      sourceSize[rank] *= highA - lowA;
      source[rank] = source[rank] * waysA + a[rank];
      target[rank] = target[rank] * waysB + b[rank];
      peers[rank] *= overlapped[b[rank]];
    }
    sources *= waysA;
    targets *= waysB;
  }
  // Ranks with the same source and target tile; the addends of the target; those
  // of them that ranks with the same tiles of the same addend of the source have.
  int64_t alike = n / mesh.size(splits), addends = mesh.size(made);
  int64_t choices = mesh.size(made & ~splits & ~reduced), takers = n / targets;
  int64_t copies = takers / addends;
  // What ranks hold of a target tile, and those with one addend of it.
  SmallVector<int64_t, 64> covered(targets, 0), coveredBy(made ? targets * addends : 0, 0);
  SmallVector<int64_t, 64> &addend = b;
  ranks.positions(listOf(made), addend);
  for (int64_t rank = 0; rank < n; ++rank) {
    covered[target[rank]] += own[rank];
    if (made)
      coveredBy[target[rank] * addends + addend[rank]] += own[rank];
  }
  // Those that hold the same tile of the same addend.
  ranks.positions(listOf(reduced), a);
  sources *= p;
  SmallVector<double, 64> kept(sources, 0), size(sources, 0);
  SmallVector<double, 64> owned(made && rounds > 1 ? targets * addends : 0, 0);
  ExchangeEstimate estimate;
  double perAlike = 1.0 / alike, perTaker = 1.0 / takers, perAddend = 1.0 / addends;
  double perChoice = 1.0 / choices;
  double perHolder = double(mesh.size(reduced & ~splits)) / alike; // of these tiles and addend
  // Of what nobody holds, too.
  auto missing = [&](int64_t rank) {
    return std::round(wanted[rank] - covered[target[rank]] * perAlike);
  };
  for (int64_t rank = 0; rank < n; ++rank) {
    double keeps = own[rank], received, most;
    if (rounds > 1) {
      keeps = own[rank] * perAlike;
      double takes = keeps + missing(rank) * perTaker;
      received = p * takes - keeps;
      most = 0; // known once the second round is
      if (made)
        owned[target[rank] * addends + addend[rank]] += takes;
      estimate.mostAssembled = std::max(estimate.mostAssembled, takes);
    } else if (made) {
      // What an addend of the target takes that some rank of it holds, and its
      // part of what none of all holds.
      double held = coveredBy[target[rank] * addends + addend[rank]] * perHolder;
      double rest = std::round(p * wanted[rank] - covered[target[rank]] * perHolder);
      keeps = own[rank] * perChoice;
      received = held + rest * perAddend - keeps;
      most = std::ceil(received - 1e-9);
    } else {
      received = most = p * wanted[rank] - own[rank];
    }
    estimate.mostReceived = std::max(estimate.mostReceived, most);
    estimate.received += received;
    if (received > 1e-9)
      estimate.peers =
          std::max(estimate.peers,
                   p * (rounds == 1 || missing(rank) > 0 ? peers[rank] : 1) - (own[rank] > 0));
    int64_t at = source[rank] * p + a[rank];
    kept[at] += keeps;
    size[at] = sourceSize[rank];
  }
  int64_t holders = n / sources, covers = rounds > 1 ? 1 : copies;
  for (int64_t at = 0; at < sources; ++at)
    estimate.mostSent = std::max(estimate.mostSent, (covers * size[at] - kept[at]) / holders);
  estimate.received /= n;
  if (rounds == 1)
    return estimate;
  for (int64_t rank = 0; rank < n; ++rank) {
    double keeps = own[rank] * perAlike, takes = missing(rank) * perTaker;
    double whole = made ? owned[target[rank] * addends + addend[rank]] : wanted[rank];
    estimate.received += (whole - keeps - takes) / n;
    // A copy less for each element that the rank has assembled.
    double most = (p - 2) * (p > 1 ? std::ceil(keeps) : keeps) + (p - 1) * std::ceil(takes) + whole;
    estimate.mostReceived = std::max(estimate.mostReceived, std::ceil(most - 1e-9));
  }
  estimate.mostSent += estimate.mostAssembled * (copies - 1);
  estimate.copyPeers = copies - 1;
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
    double received = even ? estimateExchange(mesh, shape, at, move.after, group).received : tile;
    return {model.permute(group, width * tile), received};
  }
  case Move::Exchange: {
    ExchangeEstimate moved = estimateExchange(mesh, shape, at, move.after, group, move.rounds);
    // Those who receive read; what others hold as well they send in equal parts.
    return {model.exchange(group, width * moved.mostReceived, moved.peers) +
                model.exchange(group, 0, moved.copyPeers),
            moved.received};
  }
  case Move::KeepFirst:
  case Move::Slice:
  case Move::Embed:
    return {};
  }
  llvm_unreachable("unknown move");
}
