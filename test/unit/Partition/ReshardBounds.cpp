#include "ReshardBounds.h"

#include <cmath>
#include <map>

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;
using namespace cleave::test;

double cleave::test::receiveFloor(const MeshAxes &mesh, ArrayRef<int64_t> shape,
                                  const Layout &from, const Layout &to) {
  if (from == to)
    return 0;
  int64_t ranks = mesh.mesh().getNumRanks(), targets = 1;
  for (const Axes &axes : to.dims)
    targets *= mesh.size(axes);
  std::vector<SmallVector<int64_t>> at;
  for (int64_t rank = 0; rank < ranks; ++rank)
    at.push_back(rankCoordinates(mesh.mesh(), rank));
  auto position = [&](ArrayRef<Axis> axes, int64_t rank) {
    int64_t position = 0;
    for (Axis axis : axes)
      position = position * mesh.size(axis) + at[rank][axis];
    return position;
  };
  double best = -1, whole = product(shape);
  AxisSet common = from.kind == to.kind ? from.partial & to.partial : 0;
  for (AxisSet kept = common;; kept = (kept - 1) & common) {
    AxisSet reduced = from.partial & ~kept, added = to.partial & ~kept;
    double groups = mesh.size(kept), terms = mesh.size(reduced);
    double holders = double(ranks) / groups / targets / mesh.size(added);
    // A pair of a source tile and a target tile. `overlap` is the number of
    // elements that both have. `ranks` is the number of ranks that have this
    // pair of tiles, for each partial sum of the target.
    struct Meeting {
      double overlap = 1;
      std::map<int64_t, double> ranks;
    };
    std::map<std::vector<int64_t>, Meeting> met;
    Axes addedAxes = listOf(added);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      std::vector<int64_t> key;
      double overlap = 1;
      for (auto [dim, extent] : llvm::enumerate(shape)) {
        int64_t i = position(from.dims[dim], rank),
                j = position(to.dims[dim], rank);
        int64_t a = tileSize(extent, mesh.size(from.dims[dim]));
        int64_t b = tileSize(extent, mesh.size(to.dims[dim]));
        overlap *=
            std::max<int64_t>(0, std::min({(i + 1) * a, (j + 1) * b, extent}) -
                                     std::max(i * a, j * b));
        key.push_back(i);
        key.push_back(j);
      }
      if (overlap == 0)
        continue;
      Meeting &meeting = met[key];
      meeting.overlap = overlap;
      ++meeting.ranks[position(addedAxes, rank)];
    }
    double held = 0, together = 0;
    for (auto &[key, meeting] : met) {
      double most = 0;
      for (auto &[term, count] : meeting.ranks)
        most = std::max(most, count);
      held += most * meeting.overlap;
      together += meeting.overlap;
    }
    double total = terms > 1
                       ? groups * (whole * (terms + holders - 1) - together)
                       : groups * whole * holders - held;
    best = best < 0 ? total : std::min(best, total);
    if (!kept)
      break;
  }
  return best;
}

Exhaustive::Exhaustive(const MeshAxes &mesh, const cost::LinkModel &model,
                       ArrayRef<int64_t> shape,
                       const std::vector<Layout> &layouts)
    : mesh(mesh), model(model), shape(shape), layouts(layouts),
      count(layouts.size()), moves(count * count),
      seconds(count * count, INFINITY) {
  for (size_t i = 0; i < count; ++i) {
    tile.push_back(product(mesh.tile(layouts[i], shape)));
    for (size_t j = 0; j < count; ++j) {
      moves[i * count + j] = between(layouts[i], layouts[j]);
      for (const MoveCost &cost : moves[i * count + j])
        seconds[i * count + j] = std::min(seconds[i * count + j], cost.seconds);
    }
  }
}

double Exhaustive::best(size_t from, size_t to, double mostReceived) const {
  double limit = std::max(tile[from], tile[to]), least = INFINITY;
  double most = mostReceived / mesh.mesh().getNumRanks();
  bool whole = !layouts[from].split() || !layouts[to].split();
  auto allowed = [&](size_t i) {
    return i == from || i == to ||
           (tile[i] <= limit && (whole || layouts[i].split()));
  };
  for (size_t i = 0; i < count; ++i) {
    if (seconds[from * count + i] >= least || !allowed(i))
      continue;
    for (size_t j = 0; j < count; ++j) {
      size_t steps[3] = {from * count + i, i * count + j, j * count + to};
      if (!allowed(j) ||
          seconds[steps[0]] + seconds[steps[1]] + seconds[steps[2]] >= least)
        continue;
      for (const MoveCost &a : moves[steps[0]])
        for (const MoveCost &b : moves[steps[1]])
          for (const MoveCost &c : moves[steps[2]])
            if (a.received + b.received + c.received <= most)
              least = std::min(least, a.seconds + b.seconds + c.seconds);
    }
  }
  return least;
}

// Lists all moves independently of the planner's own list
// (ReshardExhaustive.cpp), so that a move that is missing there is noticed
// here. Between two layouts, all moves are listed, not only the best one.
SmallVector<MoveCost, 1> Exhaustive::between(const Layout &from,
                                             const Layout &to) const {
  if (from == to)
    return {MoveCost()};
  SmallVector<MoveCost, 1> all;
  auto offer = [&](Move move) {
    all.push_back(costOf(mesh, model, shape, 1, from, move));
  };
  AxisSet gone = from.partial & ~to.partial, come = to.partial & ~from.partial;
  if (from.dims == to.dims) {
    if (!come)
      offer({Move::AllReduce, 0, 0, listOf(gone), ReduceKind::Sum, to});
    if (!gone && !(come & from.used()))
      return {MoveCost()}; // keep-first
  }
  // Axes that are partial in both layouts either stay partial or are reduced.
  AxisSet axes = mesh.exchangeAxes(shape, from, to),
          common = from.partial & to.partial;
  AxisSet unused = mesh.everyAxis() & ~(from.used() | to.used());
  for (AxisSet summed : {AxisSet(0), common}) {
    auto exchange = [&](AxisSet over, int64_t rounds) {
      offer({Move::Exchange, 0, 0, listOf(over), ReduceKind::Sum, to, rounds});
    };
    exchange(axes | summed, 1);
    if (!gone && !summed)
      continue;
    exchange(axes | summed, 2);
    exchange(axes | summed | unused, 2);
  }
  // The dimension that loses axes at the end of its axis list (`shrunk`), the
  // dimension that gains axes there (`grown`), and the number of other changes.
  int shrunk = -1, grown = -1, others = 0;
  Axes lost, won;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    ArrayRef<Axis> a = from.dims[dim], b = to.dims[dim];
    if (a == b)
      continue;
    if (a.size() < b.size() && b.take_front(a.size()) == a && grown < 0) {
      grown = dim;
      won = Axes(b.drop_front(a.size()));
      others += !mesh.nests(shape[dim], a, won);
    } else if (b.size() < a.size() && a.take_front(b.size()) == b &&
               shrunk < 0) {
      shrunk = dim;
      lost = Axes(a.drop_front(b.size()));
      others += !mesh.nests(shape[dim], b, lost);
    } else {
      ++others;
    }
  }
  if (others)
    return all;
  if (grown >= 0 && shrunk < 0 && !come && !gone)
    return {MoveCost()}; // slice
  if (grown >= 0 && shrunk < 0 && !come && gone == setOf(won))
    offer({Move::ReduceScatter, grown, 0, won, ReduceKind::Sum, to});
  if (grown < 0 && shrunk >= 0 && !come && !gone)
    offer({Move::AllGather, shrunk, 0, lost, ReduceKind::Sum, to});
  if (grown < 0 && shrunk >= 0 && !gone && come == setOf(lost) &&
      to.dims[shrunk].empty())
    return {MoveCost()}; // embed
  if (grown >= 0 && shrunk >= 0 && !come && !gone && lost == won)
    offer({Move::AllToAll, grown, shrunk, lost, ReduceKind::Sum, to});
  return all;
}
