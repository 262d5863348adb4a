//===- ExchangeEstimate.cpp - what an exchange moves ----------------------===//
//
// Only the amounts are needed here, not the boxes: a rank receives its target
// tile less what it holds; those that hold one source tile share what others
// need of it, which is the tile once for every rank group that covers the
// tensor, less what its holders keep.
//
// Of one round in which no partial sums are made all is exact; only where
// hundreds of ranks share tiles the number of senders is reckoned from means.
// Else what ranks receive together is exact; what the busiest receives and
// sends, and from how many, takes elements to be divisible and boxes to be of
// one size.
//
//===----------------------------------------------------------------------===//

#include "ReshardCost.h"
#include "cleave/exchange_tiles.h"
#include <cmath>

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

namespace {

/// The ranks of the axes that two layouts use, with the tile of each.
class Ranks {
public:
  Ranks(const MeshAxes &mesh, AxisSet active)
      : mesh(mesh), axes(listOf(active)) {
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
      int64_t size = mesh.size(axis),
              stride = strides[llvm::find(axes, axis) - axes.begin()];
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

/// Beyond these so many boxes of source tiles are not visited one by one.
constexpr int64_t kMostBoxes = 1 << 14;

/// Where several ranks hold the same tile of the same partial sum what others
/// need of it is laid end to end and shared: how many a rank receives from
/// depends on where its own boxes are. Visits them all.
class Sharing {
public:
  Sharing(const MeshAxes &mesh, const Ranks &ranks, ArrayRef<int64_t> shape,
          const Layout &from, const Layout &to)
      : shape(shape), count(ranks.count) {
    SmallVector<int64_t, 64> target;
    for (auto [dim, extent] : llvm::enumerate(shape)) {
      ways.push_back(mesh.size(from.dims[dim]));
      tile.push_back(std::max<int64_t>(tileSize(extent, ways.back()), 1));
      int64_t wanted =
          std::max<int64_t>(tileSize(extent, mesh.size(to.dims[dim])), 1);
      ranks.positions(to.dims[dim], target);
      for (int64_t rank = 0; rank < count; ++rank) {
        low.push_back(std::min(target[rank] * wanted, extent));
        high.push_back(std::min(low.back() + wanted, extent));
      }
    }
  }

  /// `source`, `partial sum`: of each rank; the tiles of `partial sums` are
  /// held by `holders`.
  void run(ArrayRef<int64_t> source, ArrayRef<int64_t> term, int64_t terms,
           int64_t holders, ExchangeEstimate &estimate) const {
    SmallVector<int64_t, 64> needed(llvm::product_of(ways) * terms, 0), sent,
        begin;
    auto forNeeds = [&](auto body) {
      forBoxes([&](int64_t rank, int64_t at, int64_t volume) {
        for (int64_t i = 0; i < terms; ++i)
          if (source[rank] != at || term[rank] != i)
            body(rank, at * terms + i, volume);
      });
    };
    forNeeds(
        [&](int64_t, int64_t at, int64_t volume) { needed[at] += volume; });
    begin.assign(needed.size(), 0);
    sent.assign(needed.size() * holders, 0);
    SmallVector<int64_t, 64> peers(count, 0);
    forNeeds([&](int64_t rank, int64_t at, int64_t volume) {
      program::shareBox(sizes, 0, volume, begin[at], needed[at], holders,
                        [&](int64_t low, int64_t high, int64_t holder) {
                          ++peers[rank];
                          sent[at * holders + holder] += high - low;
                        });
      begin[at] += volume;
    });
    estimate.peers = *llvm::max_element(peers);
    estimate.mostSent = *llvm::max_element(sent);
  }

private:
  /// Calls body(rank, source tile, elements), with their `sizes` set.
  template <typename Body> void forBoxes(Body body) const {
    for (int64_t rank = 0; rank < count; ++rank)
      forBoxesOf(rank, 0, 0, 1, body);
  }
  template <typename Body>
  void forBoxesOf(int64_t rank, size_t dim, int64_t at, int64_t volume,
                  Body body) const {
    if (dim == shape.size()) {
      body(rank, at, volume);
      return;
    }
    int64_t first = low[dim * count + rank], last = high[dim * count + rank];
    for (int64_t next; first < last; first = next) {
      int64_t index = first / tile[dim];
      next = std::min(last, (index + 1) * tile[dim]);
      sizes[dim] = next - first;
      forBoxesOf(rank, dim + 1, at * ways[dim] + index, volume * (next - first),
                 body);
    }
  }

  ArrayRef<int64_t> shape;
  int64_t count;
  SmallVector<int64_t, 4> ways, tile;  // of the source, by dimension
  SmallVector<int64_t, 128> low, high; // of target tiles, by dimension and rank
  mutable SmallVector<int64_t, 4> sizes = SmallVector<int64_t, 4>(shape.size());
};

/// So many of `boxes` of one size, laid end to end, are in one of `ways` equal
/// parts at most.
int64_t boxesInPart(int64_t boxes, int64_t ways) {
  return boxes / ways + std::min<int64_t>(boxes % ways, 2);
}

} // namespace

ExchangeEstimate cleave::partition::estimateExchange(
    const MeshAxes &mesh, ArrayRef<int64_t> shape, const Layout &from,
    const Layout &to, AxisSet axes, int64_t rounds,
    function_ref<bool(const ExchangeEstimate &)> counts) {
  AxisSet reduced = from.partial & axes, made = to.partial & axes;
  AxisSet splits = from.split() | to.split();
  // In two rounds all members take part. Dimensions that are cut alike in both
  // scale everything, unless uneven.
  AxisSet active = splits | reduced | made | (rounds > 1 ? axes : 0);
  Ranks ranks(mesh, active);
  int64_t n = ranks.count, p = mesh.size(reduced);
  SmallVector<int64_t, 64> own(n, 1), wanted(n, 1), source(n, 0), target(n, 0),
      sourceSize(n, 1);
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
        overlapped[tile] = (std::min((tile + 1) * tileB, extent) - 1) / tileA -
                           tile * tileB / tileA + 1;
    for (int64_t rank = 0; rank < n; ++rank) {
      int64_t lowA = std::min(a[rank] * tileA, extent),
              highA = std::min(lowA + tileA, extent);
      int64_t lowB = std::min(b[rank] * tileB, extent),
              highB = std::min(lowB + tileB, extent);
      own[rank] *=
          std::max<int64_t>(std::min(highA, highB) - std::max(lowA, lowB), 0);
      wanted[rank] *= highB - lowB;
      sourceSize[rank] *= highA - lowA;
      source[rank] = source[rank] * waysA + a[rank];
      target[rank] = target[rank] * waysB + b[rank];
      peers[rank] *= overlapped[b[rank]];
    }
    sources *= waysA;
    targets *= waysB;
  }
  // Ranks with the same source and target tile; the partial sums of the target;
  // those of them that ranks with the same tiles of the same partial sum of the
  // source have.
  int64_t alike = n / mesh.size(splits), terms = mesh.size(made);
  int64_t choices = mesh.size(made & ~splits & ~reduced), takers = n / targets;
  int64_t copies = takers / terms;
  // What ranks hold of a target tile, and those with one partial sum of it.
  SmallVector<int64_t, 64> covered(targets, 0),
      coveredBy(made ? targets * terms : 0, 0);
  // How many ranks hold some of it.
  SmallVector<int64_t, 64> having(targets, 0), havingBy(coveredBy);
  SmallVector<int64_t, 64> &term = b;
  ranks.positions(listOf(made), term);
  for (int64_t rank = 0; rank < n; ++rank) {
    covered[target[rank]] += own[rank];
    having[target[rank]] += own[rank] > 0;
    if (made) {
      coveredBy[target[rank] * terms + term[rank]] += own[rank];
      havingBy[target[rank] * terms + term[rank]] += own[rank] > 0;
    }
  }
  // Those that hold the same tile of the same partial sum.
  ranks.positions(listOf(reduced), a);
  sources *= p;
  SmallVector<double, 64> kept(sources, 0), size(sources, 0);
  SmallVector<double, 64> owned(made && rounds > 1 ? targets * terms : 0, 0);
  ExchangeEstimate estimate;
  double perAlike = 1.0 / alike, perTaker = 1.0 / takers, perTerm = 1.0 / terms;
  double perChoice = 1.0 / choices;
  double perHolder = double(mesh.size(reduced & ~splits)) /
                     alike; // of these tiles and partial sum
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
        owned[target[rank] * terms + term[rank]] += takes;
    } else if (made) {
      // What a partial sum of the target takes that some rank of it holds, and
      // its part of what none of all holds.
      double held = coveredBy[target[rank] * terms + term[rank]] * perHolder;
      double rest =
          std::round(p * wanted[rank] - covered[target[rank]] * perHolder);
      keeps = own[rank] * perChoice;
      received = held + rest * perTerm - keeps;
      most = std::ceil(received - 1e-9);
    } else {
      received = most = p * wanted[rank] - own[rank];
    }
    estimate.mostReceived = std::max(estimate.mostReceived, most);
    estimate.received += received;
    // From how many: boxes that are the rank's to take, of each partial sum,
    // less its own.
    int64_t boxes = p * peers[rank], mine = own[rank] > 0;
    if (rounds > 1)
      boxes =
          p * (mine +
               boxesInPart(peers[rank] - having[target[rank]] / alike, takers));
    else if (made)
      boxes = havingBy[target[rank] * terms + term[rank]] +
              boxesInPart(boxes - having[target[rank]] / choices, terms);
    if (received > 1e-9)
      estimate.peers = std::max(estimate.peers, boxes - mine);
    int64_t at = source[rank] * p + a[rank];
    kept[at] += keeps;
    size[at] = sourceSize[rank];
  }
  int64_t holders = n / sources, covers = rounds > 1 ? 1 : copies;
  auto sends = [&](int64_t at) {
    return (covers * size[at] - kept[at]) / holders;
  };
  if (rounds == 1)
    for (int64_t at = 0; at < sources; ++at)
      estimate.mostSent =
          std::max(estimate.mostSent, std::ceil(sends(at) - 1e-9));
  estimate.received /= n;
  if (rounds == 1) {
    if (made || holders == 1 || (counts && !counts(estimate)))
      return estimate;
    if (n * p * *llvm::max_element(peers) <= kMostBoxes)
      Sharing(mesh, ranks, shape, from, to)
          .run(source, a, p, holders, estimate);
    else if (estimate.received >
             0) // a sender for each box, one more for each cut
      estimate.peers = std::min<int64_t>(
          n - 1, estimate.peers +
                     std::ceil(estimate.mostReceived / estimate.received));
    return estimate;
  }
  // Of each target tile (and partial sum), the ranks that have assembled some
  // of it.
  SmallVector<int64_t, 64> owners(targets * terms, 0);
  auto tileOf = [&](int64_t rank) {
    return target[rank] * terms + (made ? term[rank] : 0);
  };
  for (int64_t rank = 0; rank < n; ++rank)
    owners[tileOf(rank)] += own[rank] > 0 || missing(rank) > 0;
  for (int64_t rank = 0; rank < n; ++rank) {
    double keeps = own[rank] * perAlike, takes = missing(rank) * perTaker;
    double whole = made ? owned[tileOf(rank)] : wanted[rank];
    estimate.received += (whole - keeps - takes) / n;
    // A copy less for each element that the rank has assembled.
    double most = (p - 2) * (p > 1 ? std::ceil(keeps) : keeps) +
                  (p - 1) * std::ceil(takes) + whole;
    estimate.mostReceived =
        std::max(estimate.mostReceived, std::ceil(most - 1e-9));
    double has =
        keeps +
        takes; // who has an element more sends one less of its partial sums
    double sent = sends(source[rank] * p + a[rank]) + has +
                  std::ceil(has - 1e-9) * (copies - 2);
    estimate.mostSent = std::max(estimate.mostSent, std::ceil(sent - 1e-9));
    double copied = std::ceil(whole - has - 1e-9);
    estimate.copyPeers =
        std::max(estimate.copyPeers,
                 std::min<int64_t>(owners[tileOf(rank)] - (has > 0), copied));
  }
  return estimate;
}
