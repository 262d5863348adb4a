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
  int64_t terms = mesh.size(from.partial);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    int64_t term = position(listOf(from.partial), rank);
    forValid(layout, rank, [&](int64_t tileAt, int64_t wholeAt) {
      // The partial sums of an element have distinct values: partial sum i has
      // the value i, except the last one, which completes the sum to the
      // element.
      double value = valueAt(wholeAt);
      if (kind == ReduceKind::Sum && term + 1 == terms)
        value -= double(terms - 1) * (terms - 2) / 2;
      else if (kind == ReduceKind::Sum)
        value = term;
      else if (term != wholeAt % terms)
        value += kind == ReduceKind::Max ? -1 - term : 1 + term;
      tiles[rank][tileAt] = value;
    });
  }
}

bool ReshardSimulator::holds(const Layout &want) const {
  // Ranks with the same tile of the same partial sum must have the same
  // elements.
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

program::Exchange ReshardSimulator::describe(const Move &move) const {
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
  return description;
}

/// A group of ranks that exchange parts of their tiles.
struct ReshardSimulator::ExchangeGroup {
  ReshardSimulator &all;
  const Move &move;
  std::vector<int64_t> members;
  program::ExchangeTiles cut;
  /// The number of elements that each member sends. `load` counts the first
  /// round of messages; `copied` counts the second round, in which assembled
  /// elements are copied to other ranks.
  std::vector<double> load = std::vector<double>(members.size(), 0),
                      copied = load;

  void movePiece(const program::ExchangePiece &piece, ArrayRef<int64_t> srcTile,
                 ArrayRef<int64_t> dstTile, std::vector<Tile> &result);
  void noteImbalance() const;
};

void ReshardSimulator::ExchangeGroup::movePiece(
    const program::ExchangePiece &piece, ArrayRef<int64_t> srcTile,
    ArrayRef<int64_t> dstTile, std::vector<Tile> &result) {
  const std::vector<Tile> &source = piece.round ? result : all.tiles;
  for (int64_t flat = 0; flat < piece.count(); ++flat) {
    int64_t rest = flat, src = 0, dst = 0, srcStep = 1, dstStep = 1;
    for (size_t dim = piece.sizes.size(); dim-- > 0;) {
      int64_t index = rest % piece.sizes[dim];
      rest /= piece.sizes[dim];
      src += (piece.srcAt[dim] + index) * srcStep;
      dst += (piece.dstAt[dim] + index) * dstStep;
      srcStep *= srcTile[dim];
      dstStep *= dstTile[dim];
    }
    double value = 0;
    for (size_t i = 0; i < piece.senders.size(); ++i) {
      double next = source[members[piece.senders[i]]][src];
      value = i ? combine(all.kind, value, next) : next;
    }
    result[members[piece.receiver]][dst] = value;
  }
  for (int32_t sender : piece.senders) {
    all.book(members[sender], members[piece.receiver], piece.count());
    if (sender != piece.receiver)
      (piece.round ? copied : load)[sender] += piece.count();
  }
}

void ReshardSimulator::ExchangeGroup::noteImbalance() const {
  // The numbers of sent elements, grouped by members that should send equally
  // many. In the first round, these are the members with the same tile of the
  // same partial sum. In the second round, they are the members with the same
  // source tile and the same target tile.
  std::map<std::vector<int64_t>, std::vector<double>> same;
  for (size_t i = 0; i < members.size(); ++i) {
    const auto &member = cut.members[i];
    std::vector<int64_t> key = member.from;
    key.push_back(member.term);
    same[key].push_back(load[i]);
    key = member.from;
    llvm::append_range(key, member.to);
    key.insert(key.end(), {member.toTerm, -1});
    same[key].push_back(copied[i]);
  }
  double copies = double(members.size()) /
                  all.mesh.size(setOf(move.axes) & move.after.used());
  for (auto &[key, loads] : same) {
    double total = 0, most = 0;
    // In the second round, the rank that has assembled an element sends it to
    // all other ranks that need it.
    if (key.back() == -1 && copies > 1)
      for (double &one : loads)
        one /= copies - 1;
    for (double one : loads) {
      total += one;
      most = std::max(most, one);
    }
    // Elements cannot be divided, so a sender may send up to one element more
    // than its share.
    if (total > 0)
      all.worstImbalance =
          std::max(all.worstImbalance, most / std::ceil(total / loads.size()));
  }
}

void ReshardSimulator::exchange(const Move &move) {
  // The planner splits mesh axes into atoms, which no sharding splits further.
  // Each atom is an axis of the mesh of the simulated program.
  std::vector<program::MeshAxis> axes;
  for (unsigned axis = 0; axis < mesh.count(); ++axis)
    axes.push_back({"", mesh.size(Axis(axis)), ""});
  program::Exchange description = describe(move);
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
    ExchangeGroup exchanging{*this, move, members,
                             program::exchangeTiles(axes, description, where)};
    program::ExchangePlan plan(exchanging.cut);
    if (!plan.complete()) {
      layout = Layout(shape.size()); // holds() will fail
      return;
    }
    std::vector<program::ExchangePiece> pieces = plan.pieces();
    for (int round = 0; round < 2; ++round)
      for (const program::ExchangePiece &piece : pieces)
        if (piece.round == round)
          exchanging.movePiece(piece, round ? toTile : fromTile, toTile,
                               result);
    exchanging.noteImbalance();
  }
  tiles = std::move(result);
}

/// Calls body(index) for every element of a tile of `extents`.
template <typename Body>
static void forEach(ArrayRef<int64_t> extents, Body body) {
  ReshardSimulator::Shape index(extents.size(), 0);
  for (int64_t flat = 0, count = product(extents); flat < count; ++flat) {
    int64_t rest = flat;
    for (size_t dim = extents.size(); dim-- > 0;) {
      index[dim] = rest % extents[dim];
      rest /= extents[dim];
    }
    body(index);
  }
}

static int64_t offset(ArrayRef<int64_t> extents, ArrayRef<int64_t> index) {
  int64_t at = 0;
  for (size_t dim = 0; dim < extents.size(); ++dim)
    at = at * extents[dim] + index[dim];
  return at;
}

static bool inside(ArrayRef<int64_t> extents, ArrayRef<int64_t> index) {
  for (size_t dim = 0; dim < extents.size(); ++dim)
    if (index[dim] >= extents[dim])
      return false;
  return true;
}

/// Computes the tile of one rank after a collective, or after a local move of
/// its own tile.
struct ReshardSimulator::TileMove {
  ReshardSimulator &all;
  const Move &move;
  const Shape &have, &want; // tiles before and after
  int64_t rank;
  Tile &out;
  std::vector<int64_t> members = all.group(move.axes, rank);
  int64_t self = all.position(move.axes, rank);

  void run();
  void allReduce();
  void reduceScatter();
  void allGather();
  void allToAll();
  void permute();
  void slice();
  void keepFirst();
  void embed();

  /// Returns an element of a rank's tile. Past the end of the tile, returns the
  /// NaN padding that collectives use.
  double read(int64_t from, ArrayRef<int64_t> index) const {
    return inside(have, index) ? all.tiles[from][offset(have, index)] : NAN;
  }
  /// Returns the element at `index` of a member's tile; padding if there is no
  /// such member or element.
  double readOf(int64_t member, ArrayRef<int64_t> index) const {
    return member < std::ssize(members) ? read(members[member], index) : NAN;
  }
  void receive(double elements) {
    for (int64_t other : members)
      all.book(other, rank, elements);
  }
};

void ReshardSimulator::TileMove::run() {
  switch (move.kind) {
  case Move::AllReduce:
    return allReduce();
  case Move::ReduceScatter:
    return reduceScatter();
  case Move::AllGather:
    return allGather();
  case Move::AllToAll:
    return allToAll();
  case Move::Permute:
    return permute();
  case Move::Slice:
    return slice();
  case Move::KeepFirst:
    return keepFirst();
  case Move::Embed:
    return embed();
  case Move::Exchange:
    return;
  }
}

void ReshardSimulator::TileMove::allReduce() {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = all.tiles[members[0]][i];
    for (int64_t other : llvm::drop_begin(members))
      out[i] = combine(move.reduce, out[i], all.tiles[other][i]);
  }
  receive(2.0 * out.size() / members.size());
}

void ReshardSimulator::TileMove::reduceScatter() {
  forEach(want, [&](Shape index) {
    int64_t to = offset(want, index);
    index[move.dim] += self * want[move.dim];
    out[to] = read(members[0], index);
    for (int64_t other : llvm::drop_begin(members))
      out[to] = combine(move.reduce, out[to], read(other, index));
  });
  receive(out.size());
}

void ReshardSimulator::TileMove::allGather() {
  forEach(want, [&](Shape index) {
    int64_t to = offset(want, index);
    int64_t from = index[move.dim] / have[move.dim];
    index[move.dim] %= have[move.dim];
    out[to] = readOf(from, index);
  });
  receive(product(have));
}

void ReshardSimulator::TileMove::allToAll() {
  forEach(want, [&](Shape index) {
    int64_t to = offset(want, index);
    int64_t from = index[move.concat] / have[move.concat];
    index[move.concat] %= have[move.concat];
    index[move.dim] += self * want[move.dim];
    out[to] = readOf(from, index);
  });
  receive(double(product(have)) / have[move.dim] * want[move.dim]);
}

/// Receives the tile of the member that holds this rank's target tile.
void ReshardSimulator::TileMove::permute() {
  for (int64_t other : members) {
    bool same = true;
    for (size_t dim = 0; dim < have.size(); ++dim)
      same &= all.position(all.layout.dims[dim], other) ==
              all.position(move.after.dims[dim], rank);
    if (!same)
      continue;
    out = all.tiles[other];
    all.book(other, rank, out.size());
    break;
  }
}

void ReshardSimulator::TileMove::slice() {
  forEach(want, [&](Shape index) {
    int64_t to = offset(want, index);
    index[move.dim] += self * want[move.dim];
    out[to] = read(rank, index);
  });
}

void ReshardSimulator::TileMove::keepFirst() {
  out = all.tiles[rank];
  if (move.reduce == ReduceKind::Sum && self > 0)
    std::fill(out.begin(), out.end(), 0);
}

void ReshardSimulator::TileMove::embed() {
  forEach(want, [&](Shape index) {
    int64_t to = offset(want, index);
    index[move.dim] -= self * have[move.dim];
    out[to] = index[move.dim] < 0 || index[move.dim] >= have[move.dim]
                  ? 0
                  : read(rank, index);
  });
}

void ReshardSimulator::run(const Move &move) {
  if (move.kind == Move::Exchange) {
    exchange(move);
  } else {
    Shape have(mesh.tile(layout, shape)), want(mesh.tile(move.after, shape));
    std::vector<Tile> result(ranks, Tile(product(want), NAN));
    for (int64_t rank = 0; rank < ranks; ++rank)
      TileMove{*this, move, have, want, rank, result[rank]}.run();
    tiles = std::move(result);
  }
  layout = move.after;
  if (layout.partial)
    kind = layout.kind;
}
