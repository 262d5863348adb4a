// The layout of a tensor on the members of an exchange, and how members that
// hold the same tile share the work of sending it.
#ifndef CLEAVE_EXCHANGE_TILES_H
#define CLEAVE_EXCHANGE_TILES_H

#include "cleave/program.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace cleave::program {

// The layout of the tensor on the members of a group, before and after the
// exchange. A dimension of N elements is cut into tiles of T elements: tile i
// holds the elements from i * T on, cut off at N.
struct ExchangeTiles {
  struct Member {
    std::vector<int64_t> from, to; // index of the tile along each dimension
    int64_t term = 0;              // number of its partial sum of the source
    int64_t toTerm = 0;            // number of its partial sum of the target
  };
  std::vector<int64_t> shape, fromTile, toTile;
  int64_t terms = 1, toTerms = 1, rounds = 1;
  std::vector<Member> members;
};

// Shares the sending of `total` elements of a tile among the `ways` members
// that hold the tile. All elements to send form a sequence, of which each of
// these members sends one of `ways` equal parts. At position `start` the
// sequence has the elements [begin, end), in row-major order, of a rectangular
// range with the given sizes. Calls body(low, high, way), in order, for each
// member that sends some of these elements: member `way` sends the elements
// [low, high) of the range. The boundary between two parts is moved to the
// nearest end of a row of the range if the parts stay almost equal.
template <class Sizes, class Body>
void shareBox(const Sizes &sizes, int64_t begin, int64_t end, int64_t start,
              int64_t total, int64_t ways, Body body) {
  // If `total` is not divisible by `ways`, the last parts are larger by one.
  int64_t each = total / ways, small = ways - total % ways;
  auto bound = [&](int64_t way) {
    return each * way + std::max<int64_t>(0, way - small);
  };
  int64_t grain = 1, slab = 1, most = std::max<int64_t>(1, each / 16);
  for (size_t dim = sizes.size(); dim-- > 0 && slab * sizes[dim] <= most;)
    grain = slab *= sizes[dim];
  // The number of the part that contains position `start`.
  int64_t way = start < each * small
                    ? start / each
                    : small + (start - each * small) / (each + 1);
  int64_t at = begin, taker = -1;
  for (; way < ways; ++way) {
    int64_t low = bound(way) - start + begin;
    if (low >= end)
      break;
    low = low <= begin ? begin
                       : std::max(begin, (low + grain / 2) / grain * grain);
    if (low >= end)
      break;
    if (taker >= 0 && at < low)
      body(at, low, taker);
    at = low;
    taker = way;
  }
  if (taker >= 0)
    body(at, end, taker);
}

// Implements forBoxes() for the dimensions from `dim` on. The coordinates in
// `low` and `sizes` before `dim` are already set.
template <class Body>
void forBoxesFrom(size_t dim, const std::vector<int64_t> &box, int64_t begin,
                  int64_t end, std::vector<int64_t> &low,
                  std::vector<int64_t> &sizes, Body &body) {
  if (dim == box.size())
    return body(std::as_const(low), std::as_const(sizes));
  int64_t slab = 1;
  for (size_t d = dim + 1; d < box.size(); ++d)
    slab *= box[d];
  auto down = [&](int64_t index, int64_t count, int64_t from, int64_t to) {
    low[dim] = index;
    sizes[dim] = count;
    bool whole = from == 0 && to == slab;
    for (size_t d = dim + 1; whole && d < box.size(); ++d) {
      low[d] = 0;
      sizes[d] = box[d];
    }
    forBoxesFrom(whole ? box.size() : dim + 1, box, from, to, low, sizes, body);
  };
  if (int64_t head = begin % slab; head > 0) {
    int64_t stop = std::min(end, begin - head + slab);
    down(begin / slab, 1, head, stop - (begin - head));
    begin = stop;
  }
  if (int64_t count = (end - begin) / slab; count > 0) {
    down(begin / slab, count, 0, slab);
    begin += count * slab;
  }
  if (begin < end)
    down(begin / slab, 1, 0, end - begin);
}

// Divides the elements [begin, end), counted in row-major order, of a
// rectangular range with the sizes `box` into smaller rectangular ranges. Calls
// body(low, sizes) for each smaller range in order: `low` is the index of its
// first element in the large range, `sizes` are its sizes.
template <class Body>
void forBoxes(const std::vector<int64_t> &box, int64_t begin, int64_t end,
              Body body) {
  std::vector<int64_t> low(box.size(), 0), sizes(box.size(), 1);
  forBoxesFrom(0, box, begin, end, low, sizes, body);
}

// positionOn() returns the index of a rank on a list of sub-axes (the first one
// slowest), computed from the rank's coordinates on all mesh axes.
// positionsOn() returns the number of such indices.
inline int64_t positionOn(const std::vector<SubAxis> &axes,
                          const std::vector<MeshAxis> &mesh,
                          const std::vector<int64_t> &coordinates) {
  int64_t position = 0;
  for (const SubAxis &sub : axes)
    position = position * sub.size +
               coordinates[sub.axis] /
                   (mesh[sub.axis].size / (sub.pre * sub.size)) % sub.size;
  return position;
}
inline int64_t positionsOn(const std::vector<SubAxis> &axes) {
  int64_t positions = 1;
  for (const SubAxis &sub : axes)
    positions *= sub.size;
  return positions;
}

// Returns the layouts of all members. `coordinates` has the coordinates of each
// member on the mesh axes.
inline ExchangeTiles
exchangeTiles(const std::vector<MeshAxis> &mesh, const Exchange &exchange,
              const std::vector<std::vector<int64_t>> &coordinates) {
  ExchangeTiles tiles;
  tiles.shape = exchange.shape;
  tiles.terms = positionsOn(exchange.partial);
  tiles.toTerms = positionsOn(exchange.toPartial);
  tiles.rounds = exchange.rounds;
  for (size_t dim = 0; dim < exchange.shape.size(); ++dim) {
    auto tile = [&](const std::vector<SubAxis> &axes) {
      int64_t ways = positionsOn(axes);
      // The tile size is at least 1, also in a dimension without elements,
      // because positions are divided by it.
      return std::max<int64_t>((exchange.shape[dim] + ways - 1) / ways, 1);
    };
    tiles.fromTile.push_back(tile(exchange.from[dim]));
    tiles.toTile.push_back(tile(exchange.to[dim]));
  }
  for (const std::vector<int64_t> &at : coordinates) {
    ExchangeTiles::Member &member = tiles.members.emplace_back();
    for (const std::vector<SubAxis> &axes : exchange.from)
      member.from.push_back(positionOn(axes, mesh, at));
    for (const std::vector<SubAxis> &axes : exchange.to)
      member.to.push_back(positionOn(axes, mesh, at));
    member.term = positionOn(exchange.partial, mesh, at);
    member.toTerm = positionOn(exchange.toPartial, mesh, at);
  }
  return tiles;
}

} // namespace cleave::program

#endif // CLEAVE_EXCHANGE_TILES_H
