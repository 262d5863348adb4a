//===- ExchangeEstimate.cpp - the volume of an exchange -------------------===//
//
// Estimates how many elements an exchange moves. It counts elements, and does
// not compute which rectangular ranges of elements move. A rank receives its
// target tile, except for the elements that it already holds. The ranks that
// hold the same source tile divide the sending among them: together they send
// the tile once to each group of ranks that together hold one full copy of the
// target tensor, except for the elements that they keep themselves.
//
// A layout may be partial: the tensor is then the sum of several tensors
// (partial sums), and each rank holds a tile of one of them. An exchange has
// one or two rounds. In the first of two rounds, a rank receives and adds up
// only its share of the elements that several ranks need. In the second round,
// it sends copies of its share to these ranks.
//
// If an exchange has one round and makes no partial sums, all numbers are
// exact, with one exception: if hundreds of ranks share tiles, the number of
// senders is estimated from means. For other exchanges, only the total that all
// ranks receive is exact. The numbers for the busiest rank (elements received
// and sent, number of senders) then assume that dimensions divide evenly and
// that ranges have equal size.
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

/// The ranks along the axes that two layouts use, and the tile that each of
/// them holds.
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

  /// Computes the position of each rank along the axes in `list`.
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

/// The largest number of ranges of elements (overlaps of a target tile and a
/// source tile) that are visited one by one to count senders.
constexpr int64_t kMostBoxes = 1 << 14;

/// Counts senders if several ranks hold the same tile of the same partial sum.
/// The rectangular ranges of the tile that other ranks need are concatenated,
/// and each holder sends an equal share of them. If a range crosses the border
/// of two shares, its receiver has two senders for it. So all ranges are
/// visited one by one.
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

  /// For each rank, `source` has the number of its source tile, and `term` the
  /// number of the partial sum that it holds (one of the `terms` tensors whose
  /// sum is the value). Each tile of each partial sum is held by `holders`
  /// ranks.
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
  /// Calls body(rank, source tile, number of elements) for each rectangular
  /// range of elements in which a rank's target tile overlaps a source tile.
  /// During the call, `sizes` has the sizes of this range.
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
  SmallVector<int64_t, 4> ways, tile;  // of the source tiles, by dimension
  SmallVector<int64_t, 128> low, high; // bounds of target tiles, by dimension
                                       // and rank
  mutable SmallVector<int64_t, 4> sizes = SmallVector<int64_t, 4>(shape.size());
};

/// Consider a row of `boxes` intervals of equal length, which is cut into
/// `ways` equal parts. Returns the largest number of intervals that one part
/// overlaps.
int64_t boxesInPart(int64_t boxes, int64_t ways) {
  return boxes / ways + std::min<int64_t>(boxes % ways, 2);
}

/// The numbers of elements that an exchange moves. Each number is for a single
/// rank unless its comment says otherwise.
class ExchangeModel {
public:
  ExchangeModel(const MeshAxes &mesh, ArrayRef<int64_t> shape,
                const Layout &from, const Layout &to, AxisSet axes,
                int64_t rounds)
      : mesh(mesh), shape(shape), from(from), to(to), rounds(rounds),
        reduced(from.partial & axes), made(to.partial & axes),
        splits(from.split() | to.split()),
        // The ranks that take part: those along all axes that split a
        // dimension, over which partial sums are reduced, or over which partial
        // sums are created. With two rounds, also those along all other axes of
        // the exchange.
        ranks(mesh, splits | reduced | made | (rounds > 1 ? axes : 0)),
        n(ranks.count), p(mesh.size(reduced)), own(n, 1), wanted(n, 1),
        sourceSize(n, 1), peers(n, 1), source(n, 0), target(n, 0) {
    for (size_t dim = 0; dim < shape.size(); ++dim)
      addDim(dim);
    alike = n / mesh.size(splits), terms = mesh.size(made);
    choices = mesh.size(made & ~splits & ~reduced), takers = n / targets;
    copies = takers / terms;
    perAlike = 1.0 / alike, perTaker = 1.0 / takers;
    perTerm = 1.0 / terms, perChoice = 1.0 / choices;
    ranks.positions(listOf(made), targetTerm);
    ranks.positions(listOf(reduced), sourceTerm);
    sources *= p;
    countHolders();
  }

  ExchangeEstimate
  estimate(function_ref<bool(const ExchangeEstimate &)> counts) {
    kept.assign(sources, 0), size.assign(sources, 0);
    owned.assign(made && rounds > 1 ? targets * terms : 0, 0);
    for (int64_t rank = 0; rank < n; ++rank)
      addFirstRound(rank);
    result.received /= n;
    if (rounds == 1)
      finishOneRound(counts);
    else
      addSecondRound();
    return result;
  }

private:
  /// Multiplies the numbers of elements of each rank by the extents along
  /// dimension `dim`: those of the source tile, of the target tile, and of the
  /// part of the target tile that the rank already holds.
  void addDim(size_t dim) {
    int64_t extent = shape[dim];
    int64_t waysA = mesh.size(from.dims[dim]), waysB = mesh.size(to.dims[dim]);
    if (waysA == 1 && waysB == 1) {
      for (int64_t rank = 0; rank < n; ++rank) {
        own[rank] *= extent;
        wanted[rank] *= extent;
        sourceSize[rank] *= extent;
      }
      return;
    }
    int64_t tileA = std::max<int64_t>(tileSize(extent, waysA), 1);
    int64_t tileB = std::max<int64_t>(tileSize(extent, waysB), 1);
    SmallVector<int64_t, 64> a, b;
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

  void countHolders() {
    covered.assign(targets, 0), having.assign(targets, 0);
    coveredBy.assign(made ? targets * terms : 0, 0);
    havingBy = coveredBy;
    for (int64_t rank = 0; rank < n; ++rank) {
      covered[target[rank]] += own[rank];
      having[target[rank]] += own[rank] > 0;
      if (made) {
        coveredBy[tileOf(rank)] += own[rank];
        havingBy[tileOf(rank)] += own[rank] > 0;
      }
    }
  }

  /// Returns the index of the rank's entry in lists (`coveredBy`, `havingBy`,
  /// `owned`) that have one entry for each pair of a target tile and a partial
  /// sum of the target. The rank's pair is the one that it holds after the
  /// exchange.
  int64_t tileOf(int64_t rank) const {
    return target[rank] * terms + (made ? targetTerm[rank] : 0);
  }

  /// Returns the number of elements of the rank's target tile that no rank with
  /// this target tile holds before the exchange.
  double missing(int64_t rank) const {
    return std::round(wanted[rank] - covered[target[rank]] * perAlike);
  }

  /// Numbers of elements of one rank in the first or only round of an exchange:
  /// those that the rank keeps, those that it receives on average, and the
  /// largest number that it may receive.
  struct Amounts {
    double keeps, received, most;
  };
  Amounts firstRound(int64_t rank) {
    if (rounds > 1) {
      double keeps = own[rank] * perAlike;
      double takes = keeps + missing(rank) * perTaker;
      if (made)
        owned[tileOf(rank)] += takes;
      // The largest number of elements that a rank may receive is left open
      // here. addSecondRound computes it for the two rounds of the exchange
      // together.
      return {keeps, p * takes - keeps, 0};
    }
    if (!made) {
      double received = p * wanted[rank] - own[rank];
      return {double(own[rank]), received, received};
    }
    // The reciprocal of the number of ranks that hold the same source and
    // target tile and the same partial sum of the source.
    double perHolder = double(mesh.size(reduced & ~splits)) / alike;
    // `held`: the number of elements of this rank's target tile that are held
    // by ranks with the same target tile and the same partial sum of the
    // target. `rest`: the number of elements that no rank with this target tile
    // holds. Each partial sum of the target gets an equal share of them.
    double held = coveredBy[tileOf(rank)] * perHolder;
    double rest =
        std::round(p * wanted[rank] - covered[target[rank]] * perHolder);
    double keeps = own[rank] * perChoice;
    double received = held + rest * perTerm - keeps;
    return {keeps, received, std::ceil(received - 1e-9)};
  }

  /// Returns the number of ranks that send to this rank. For each source tile
  /// that overlaps the rank's target tile, one range of elements is sent for
  /// each partial sum of the source. Ranges that the rank itself holds are not
  /// sent.
  int64_t sendersTo(int64_t rank) const {
    int64_t boxes = p * peers[rank], mine = own[rank] > 0;
    if (rounds > 1)
      boxes =
          p * (mine +
               boxesInPart(peers[rank] - having[target[rank]] / alike, takers));
    else if (made)
      boxes = havingBy[tileOf(rank)] +
              boxesInPart(boxes - having[target[rank]] / choices, terms);
    return boxes - mine;
  }

  void addFirstRound(int64_t rank) {
    Amounts amounts = firstRound(rank);
    result.mostReceived = std::max(result.mostReceived, amounts.most);
    result.received += amounts.received;
    if (amounts.received > 1e-9)
      result.peers = std::max(result.peers, sendersTo(rank));
    int64_t at = source[rank] * p + sourceTerm[rank];
    kept[at] += amounts.keeps;
    size[at] = sourceSize[rank];
  }

  /// Returns the number of elements that a rank sends if it holds the source
  /// tile and partial sum with index `at`.
  double sends(int64_t at) const {
    int64_t holders = n / sources, covers = rounds > 1 ? 1 : copies;
    return (covers * size[at] - kept[at]) / holders;
  }

  void finishOneRound(function_ref<bool(const ExchangeEstimate &)> counts) {
    int64_t holders = n / sources;
    for (int64_t at = 0; at < sources; ++at)
      result.mostSent = std::max(result.mostSent, std::ceil(sends(at) - 1e-9));
    if (made || holders == 1 || (counts && !counts(result)))
      return;
    if (n * p * *llvm::max_element(peers) <= kMostBoxes)
      Sharing(mesh, ranks, shape, from, to)
          .run(source, sourceTerm, p, holders, result);
    else if (result.received >
             0) // a sender for each range, one more for each border of shares
      result.peers = std::min<int64_t>(
          n - 1,
          result.peers + std::ceil(result.mostReceived / result.received));
  }

  void addSecondRound() {
    // For each pair of a target tile and a partial sum of the target: the
    // number of ranks on which some elements of the pair are complete after the
    // first round. They send copies in the second round.
    SmallVector<int64_t, 64> owners(targets * terms, 0);
    for (int64_t rank = 0; rank < n; ++rank)
      owners[tileOf(rank)] += own[rank] > 0 || missing(rank) > 0;
    for (int64_t rank = 0; rank < n; ++rank) {
      double keeps = own[rank] * perAlike, takes = missing(rank) * perTaker;
      double whole = made ? owned[tileOf(rank)] : wanted[rank];
      result.received += (whole - keeps - takes) / n;
      // In the second round, a rank receives no copy of an element that is
      // complete on it after the first round.
      double most = (p - 2) * (p > 1 ? std::ceil(keeps) : keeps) +
                    (p - 1) * std::ceil(takes) + whole;
      result.mostReceived =
          std::max(result.mostReceived, std::ceil(most - 1e-9));
      // If a rank itself adds up the terms of an element, it sends its own term
      // of the element to no rank.
      double has = keeps + takes;
      double sent = sends(source[rank] * p + sourceTerm[rank]) + has +
                    std::ceil(has - 1e-9) * (copies - 2);
      result.mostSent = std::max(result.mostSent, std::ceil(sent - 1e-9));
      double copied = std::ceil(whole - has - 1e-9);
      result.copyPeers =
          std::max(result.copyPeers,
                   std::min<int64_t>(owners[tileOf(rank)] - (has > 0), copied));
    }
  }

  const MeshAxes &mesh;
  ArrayRef<int64_t> shape;
  const Layout &from, &to;
  int64_t rounds;
  AxisSet reduced, made, splits;
  Ranks ranks;
  int64_t n, p; ///< ranks, and partial sums of the source
  /// For each rank. `own`: the number of elements of its target tile that it
  /// holds. `wanted`, `sourceSize`: the numbers of elements of its target tile
  /// and of its source tile. `peers`: the number of source tiles that overlap
  /// its target tile.
  SmallVector<int64_t, 64> own, wanted, sourceSize, peers;
  SmallVector<int64_t, 64> source, target; ///< tiles
  SmallVector<int64_t, 64> sourceTerm, targetTerm;
  int64_t sources = 1, targets = 1;
  /// Numbers that are the same for all ranks.
  /// `alike`: how many ranks have the same source tile and target tile.
  /// `terms`: how many partial sums the target has; 1 if it is not partial.
  /// `choices`: how many partial sums of the target are found among the ranks
  /// that have the same source tile, target tile and partial sum of the source.
  /// `takers`: how many ranks have the same target tile.
  /// `copies`: how many ranks have the same target tile and partial sum of the
  /// target.
  int64_t alike, terms, choices, takers, copies;
  double perAlike, perTaker, perTerm, perChoice; ///< their reciprocals
  /// `covered`: for each target tile, the number of its elements that a rank
  /// with this target tile holds before the exchange, added up over these
  /// ranks. `having`: for each target tile, the number of these ranks that hold
  /// at least one of its elements. `coveredBy`, `havingBy`: the corresponding
  /// numbers for each pair of a target tile and a partial sum of the target
  /// (see tileOf).
  SmallVector<int64_t, 64> covered, coveredBy, having, havingBy;
  /// For each pair of a source tile and a partial sum of the source. `kept`:
  /// the number of elements that a rank which holds the pair keeps for its
  /// target tile, added up over these ranks. `size`: the number of elements of
  /// the source tile.
  SmallVector<double, 64> kept, size;
  /// For each pair of a target tile and a partial sum of the target: the number
  /// of elements that are complete on some rank after the first of two rounds.
  SmallVector<double, 64> owned;
  ExchangeEstimate result;
};

} // namespace

ExchangeEstimate cleave::partition::estimateExchange(
    const MeshAxes &mesh, ArrayRef<int64_t> shape, const Layout &from,
    const Layout &to, AxisSet axes, int64_t rounds,
    function_ref<bool(const ExchangeEstimate &)> counts) {
  return ExchangeModel(mesh, shape, from, to, axes, rounds).estimate(counts);
}
