#include "ReshardSimulator.h"

#include <cmath>
#include <map>

using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;
using namespace cleave::test;
using llvm::ArrayRef;

static double valueAt(int64_t whole) { return double(whole % 9973) + 1; }

static int64_t product(ArrayRef<int64_t> shape) {
  int64_t count = 1;
  for (int64_t extent : shape)
    count *= extent;
  return count;
}

ReshardSimulator::ReshardSimulator(const MeshAxes &mesh,
                                   ArrayRef<int64_t> shape)
    : mesh(mesh), shape(shape), layout(shape.size()) {
  for (unsigned axis = 0; axis < mesh.count(); ++axis)
    ranks *= mesh.size(Axis(axis));
  for (int64_t rank = 0; rank < ranks; ++rank)
    at.push_back(coordinates(rank));
  sent.assign(ranks, 0);
  received.assign(ranks, 0);
}

std::vector<int64_t> ReshardSimulator::coordinates(int64_t rank) const {
  std::vector<int64_t> index(mesh.count());
  for (unsigned axis = mesh.count(); axis-- > 0;) {
    index[axis] = rank % mesh.size(Axis(axis));
    rank /= mesh.size(Axis(axis));
  }
  return index;
}

int64_t ReshardSimulator::position(ArrayRef<Axis> axes, int64_t rank) const {
  int64_t position = 0;
  for (Axis axis : axes)
    position = position * mesh.size(axis) + at[rank][axis];
  return position;
}

std::vector<int64_t> ReshardSimulator::group(ArrayRef<Axis> axes,
                                             int64_t rank) const {
  std::vector<int64_t> members;
  for (int64_t member = 0; member < mesh.size(axes); ++member) {
    std::vector<int64_t> index = at[rank];
    int64_t rest = member;
    for (Axis axis : llvm::reverse(axes)) {
      index[axis] = rest % mesh.size(axis);
      rest /= mesh.size(axis);
    }
    int64_t other = 0;
    for (unsigned axis = 0; axis < mesh.count(); ++axis)
      other = other * mesh.size(Axis(axis)) + index[axis];
    members.push_back(other);
  }
  return members;
}

template <typename Body>
void ReshardSimulator::forValid(const Layout &layout, int64_t rank,
                                Body body) const {
  Shape tile(mesh.tile(layout, shape)), low, extent;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    low.push_back(position(layout.dims[dim], rank) * tile[dim]);
    extent.push_back(std::clamp<int64_t>(shape[dim] - low[dim], 0, tile[dim]));
  }
  int64_t count = product(extent);
  for (int64_t flat = 0; flat < count; ++flat) {
    int64_t rest = flat, tileAt = 0, wholeAt = 0, tileStep = 1, wholeStep = 1;
    for (size_t dim = shape.size(); dim-- > 0;) {
      int64_t index = rest % extent[dim];
      rest /= extent[dim];
      tileAt += index * tileStep;
      wholeAt += (low[dim] + index) * wholeStep;
      tileStep *= tile[dim];
      wholeStep *= shape[dim];
    }
    body(tileAt, wholeAt);
  }
}

double ReshardSimulator::combine(ReduceKind kind, double a, double b) {
  if (std::isnan(a) || std::isnan(b))
    return NAN;
  return kind == ReduceKind::Sum   ? a + b
         : kind == ReduceKind::Max ? std::max(a, b)
                                   : std::min(a, b);
}

void ReshardSimulator::fill(const Layout &from) {
  layout = from;
  kind = from.partial ? from.kind : ReduceKind::Sum;
  tiles.assign(ranks, Tile(product(mesh.tile(layout, shape)), NAN));
  int64_t addends = mesh.size(from.partial);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    int64_t addend = position(listOf(from.partial), rank);
    forValid(layout, rank, [&](int64_t tileAt, int64_t wholeAt) {
      // Distinct partial sums: each but the last equals its index.
      double value = valueAt(wholeAt);
      if (kind == ReduceKind::Sum && addend + 1 == addends)
        value -= double(addends - 1) * (addends - 2) / 2;
      else if (kind == ReduceKind::Sum)
        value = addend;
      else if (addend != wholeAt % addends)
        value += kind == ReduceKind::Max ? -1 - addend : 1 + addend;
      tiles[rank][tileAt] = value;
    });
  }
}

bool ReshardSimulator::holds(const Layout &want) const {
  // Ranks with the same tile of the same partial sum have the same elements.
  std::map<std::vector<int64_t>, int64_t> firsts;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    std::vector<int64_t> place = {position(listOf(want.partial), rank)};
    for (const Axes &axes : want.dims)
      place.push_back(position(axes, rank));
    int64_t first = firsts.try_emplace(place, rank).first->second;
    bool same = true;
    forValid(want, rank, [&](int64_t tileAt, int64_t) {
      same &= tiles[rank][tileAt] == tiles[first][tileAt];
    });
    if (!same)
      return false;
  }
  for (int64_t rank = 0; rank < ranks; ++rank) {
    std::vector<int64_t> members = group(listOf(want.partial), rank);
    bool good = layout == want;
    forValid(want, rank, [&](int64_t tileAt, int64_t wholeAt) {
      double value = tiles[members[0]][tileAt];
      for (size_t i = 1; i < members.size(); ++i)
        value = combine(want.kind, value, tiles[members[i]][tileAt]);
      good &= value == valueAt(wholeAt);
    });
    if (!good)
      return false;
  }
  return true;
}

void ReshardSimulator::exchange(const Move &move) {
  // The program's mesh has one axis for each indivisible sub-axis.
  std::vector<program::MeshAxis> axes;
  for (unsigned axis = 0; axis < mesh.count(); ++axis)
    axes.push_back({"", mesh.size(Axis(axis)), ""});
  auto list = [&](ArrayRef<Axis> atoms) {
    std::vector<program::SubAxis> subs;
    for (Axis axis : atoms)
      subs.push_back({axis, 1, mesh.size(axis)});
    return subs;
  };
  program::Exchange description;
  description.shape.assign(shape.begin(), shape.end());
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    description.from.push_back(list(layout.dims[dim]));
    description.to.push_back(list(move.after.dims[dim]));
  }
  AxisSet over = setOf(move.axes);
  description.partial = list(listOf(layout.partial & over));
  description.toPartial = list(listOf(move.after.partial & over));
  description.rounds = move.rounds;
  Shape fromTile(mesh.tile(layout, shape)),
      toTile(mesh.tile(move.after, shape));
  std::vector<Tile> result(ranks, Tile(product(toTile), NAN));
  std::vector<bool> done(ranks, false);
  for (int64_t first = 0; first < ranks; ++first) {
    if (done[first])
      continue;
    std::vector<int64_t> members = group(move.axes, first);
    std::vector<std::vector<int64_t>> where;
    for (int64_t rank : members) {
      done[rank] = true;
      where.push_back(at[rank]);
    }
    program::ExchangeTiles cut =
        program::exchangeTiles(axes, description, where);
    program::ExchangePlan plan(cut);
    if (!plan.complete()) {
      layout = Layout(shape.size()); // holds() will fail
      return;
    }
    std::vector<double> load(members.size(), 0), copied(members.size(), 0);
    std::vector<program::ExchangePiece> pieces = plan.pieces();
    for (int round = 0; round < 2; ++round)
      for (const program::ExchangePiece &piece : pieces) {
        if (piece.round != round)
          continue;
        Shape &srcTile = round ? toTile : fromTile;
        for (int64_t flat = 0; flat < piece.count(); ++flat) {
          int64_t rest = flat, src = 0, dst = 0, srcStep = 1, dstStep = 1;
          for (size_t dim = shape.size(); dim-- > 0;) {
            int64_t index = rest % piece.sizes[dim];
            rest /= piece.sizes[dim];
            src += (piece.srcAt[dim] + index) * srcStep;
            dst += (piece.dstAt[dim] + index) * dstStep;
            srcStep *= srcTile[dim];
            dstStep *= toTile[dim];
          }
          double value = 0;
          for (size_t i = 0; i < piece.senders.size(); ++i) {
            int64_t sender = members[piece.senders[i]];
            double next = round ? result[sender][src] : tiles[sender][src];
            value = i ? combine(kind, value, next) : next;
          }
          result[members[piece.receiver]][dst] = value;
        }
        for (int32_t sender : piece.senders) {
          book(members[sender], members[piece.receiver], piece.count());
          if (sender != piece.receiver)
            (round ? copied : load)[sender] += piece.count();
        }
      }
    // First round: members that hold the same tile of the same partial sum.
    // Second round: members that also need the same tile.
    std::map<std::vector<int64_t>, std::vector<double>> same;
    for (size_t i = 0; i < members.size(); ++i) {
      std::vector<int64_t> key = cut.members[i].from;
      key.push_back(cut.members[i].addend);
      same[key].push_back(load[i]);
      key = cut.members[i].from;
      llvm::append_range(key, cut.members[i].to);
      key.insert(key.end(), {cut.members[i].toAddend, -1});
      same[key].push_back(copied[i]);
    }
    double copies = double(members.size()) /
                    mesh.size(setOf(move.axes) & move.after.used());
    for (auto &[key, loads] : same) {
      double total = 0, most = 0;
      // In the second round the rank that assembled an element sends the
      // copies.
      if (key.back() == -1 && copies > 1)
        for (double &one : loads)
          one /= copies - 1;
      for (double one : loads) {
        total += one;
        most = std::max(most, one);
      }
      // Elements are not divided.
      if (total > 0)
        worstImbalance =
            std::max(worstImbalance, most / std::ceil(total / loads.size()));
    }
  }
  tiles = std::move(result);
}

void ReshardSimulator::run(const Move &move) {
  if (move.kind == Move::Exchange) {
    exchange(move);
    layout = move.after;
    if (layout.partial)
      kind = layout.kind;
    return;
  }
  Shape have(mesh.tile(layout, shape)), want(mesh.tile(move.after, shape));
  int64_t n = mesh.size(move.axes);
  std::vector<Tile> result(ranks, Tile(product(want), NAN));
  // Calls body(index) for every element of a tile of `extents`.
  auto forEach = [&](ArrayRef<int64_t> extents, auto body) {
    Shape index(extents.size(), 0);
    for (int64_t flat = 0, count = product(extents); flat < count; ++flat) {
      int64_t rest = flat;
      for (size_t dim = extents.size(); dim-- > 0;) {
        index[dim] = rest % extents[dim];
        rest /= extents[dim];
      }
      body(index);
    }
  };
  auto offset = [](ArrayRef<int64_t> extents, ArrayRef<int64_t> index) {
    int64_t at = 0;
    for (size_t dim = 0; dim < extents.size(); ++dim)
      at = at * extents[dim] + index[dim];
    return at;
  };
  auto inside = [](ArrayRef<int64_t> extents, ArrayRef<int64_t> index) {
    for (size_t dim = 0; dim < extents.size(); ++dim)
      if (index[dim] >= extents[dim])
        return false;
    return true;
  };
  // Positions beyond the end of a tile are the padding that collectives read.
  auto read = [&](int64_t rank, ArrayRef<int64_t> index) {
    return inside(have, index) ? tiles[rank][offset(have, index)] : NAN;
  };
  for (int64_t rank = 0; rank < ranks; ++rank) {
    std::vector<int64_t> members = group(move.axes, rank);
    int64_t self = position(move.axes, rank);
    Tile &out = result[rank];
    switch (move.kind) {
    case Move::AllReduce:
      for (size_t i = 0; i < out.size(); ++i) {
        out[i] = tiles[members[0]][i];
        for (int64_t other : llvm::drop_begin(members))
          out[i] = combine(move.reduce, out[i], tiles[other][i]);
      }
      for (int64_t other : members)
        book(other, rank, 2.0 * out.size() / n);
      break;
    case Move::ReduceScatter:
      forEach(want, [&](Shape index) {
        int64_t to = offset(want, index);
        index[move.dim] += self * want[move.dim];
        out[to] = read(members[0], index);
        for (int64_t other : llvm::drop_begin(members))
          out[to] = combine(move.reduce, out[to], read(other, index));
      });
      for (int64_t other : members)
        book(other, rank, out.size());
      break;
    case Move::AllGather:
      forEach(want, [&](Shape index) {
        int64_t to = offset(want, index);
        int64_t from = index[move.dim] / have[move.dim];
        index[move.dim] %= have[move.dim];
        out[to] = from < n ? read(members[from], index) : NAN;
      });
      for (int64_t other : members)
        book(other, rank, product(have));
      break;
    case Move::AllToAll:
      forEach(want, [&](Shape index) {
        int64_t to = offset(want, index);
        int64_t from = index[move.concat] / have[move.concat];
        index[move.concat] %= have[move.concat];
        index[move.dim] += self * want[move.dim];
        out[to] = from < n ? read(members[from], index) : NAN;
      });
      for (int64_t other : members)
        book(other, rank,
             double(product(have)) / have[move.dim] * want[move.dim]);
      break;
    case Move::Permute: {
      // The rank whose current tile this rank needs.
      for (int64_t other : members) {
        bool same = true;
        for (size_t dim = 0; dim < shape.size(); ++dim)
          same &= position(layout.dims[dim], other) ==
                  position(move.after.dims[dim], rank);
        if (!same)
          continue;
        out = tiles[other];
        book(other, rank, out.size());
        break;
      }
      break;
    }
    case Move::Slice:
      forEach(want, [&](Shape index) {
        int64_t to = offset(want, index);
        index[move.dim] += self * want[move.dim];
        out[to] = read(rank, index);
      });
      break;
    case Move::KeepFirst:
      out = tiles[rank];
      if (move.reduce == ReduceKind::Sum && self > 0)
        std::fill(out.begin(), out.end(), 0);
      break;
    case Move::Embed:
      forEach(want, [&](Shape index) {
        int64_t to = offset(want, index);
        index[move.dim] -= self * have[move.dim];
        out[to] = index[move.dim] < 0 || index[move.dim] >= have[move.dim]
                      ? 0
                      : read(rank, index);
      });
      break;
    case Move::Exchange:
      break;
    }
  }
  tiles = std::move(result);
  layout = move.after;
  if (layout.partial)
    kind = layout.kind;
}
