// Who sends what to whom in an exchange: every member's target tile is
// assembled from boxes of the tiles that members hold. The compiler counts with
// the same boxes that the runtime moves.
//
// Tile i of a dimension of N elements cut into tiles of T holds the elements
// from i * T on, cut off at N. Members that hold the same tile (of the same
// addend) share its sending: what others need of it, laid end to end in the
// order of the receivers, is cut into equal parts.
#ifndef CLEAVE_EXCHANGE_H
#define CLEAVE_EXCHANGE_H

#include "cleave/program.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace cleave::program {

// How the tensor lies on the members of a group, before and after.
struct ExchangeTiles {
  struct Member {
    std::vector<int64_t> from, to; // which tile, per dimension
    int64_t addend = 0;            // which addend of the source
  };
  std::vector<int64_t> shape, fromTile, toTile;
  int64_t addends = 1;
  std::vector<Member> members;
};

// A box of the receiver's tile: the reduction of the boxes of the senders, one
// for each addend, in this order. `srcAt` and `dstAt` are its first element in
// the tiles of sender and receiver.
struct ExchangePiece {
  int32_t receiver = 0;
  std::vector<int32_t> senders;
  std::vector<int64_t> srcAt, dstAt, sizes;

  int64_t count() const {
    int64_t count = 1;
    for (int64_t size : sizes)
      count *= size;
    return count;
  }
};

class ExchangePlan {
public:
  explicit ExchangePlan(const ExchangeTiles &tiles) : tiles(tiles) {
    indexHolders();
    for (size_t member = 0; member < tiles.members.size(); ++member)
      collect(static_cast<int32_t>(member));
  }

  // False when some element that is needed is held by no member.
  bool complete() const { return isComplete; }

  // The pieces that `self` sends or receives, those of all for -1. Members see
  // common pieces in the same order.
  std::vector<ExchangePiece> pieces(int32_t self = -1) const {
    std::vector<ExchangePiece> all;
    if (!isComplete)
      return all;
    for (const Need &need : needs) {
      if (self >= 0 && need.receiver != self && !holds(need, self))
        continue;
      cut(need, self, all);
    }
    return all;
  }

private:
  // What a receiver takes of one source tile.
  struct Need {
    int32_t receiver = 0;
    std::vector<int64_t> tile, low, sizes; // `low` in the whole tensor
    // Per addend: its class of holders, and where the need begins among all
    // that is needed of it; -1: the receiver holds it.
    std::vector<std::pair<size_t, int64_t>> demand;
  };
  // Members that hold the same tile of the same addend.
  struct Holders {
    std::vector<int64_t> key;
    std::vector<int32_t> members;
    int64_t needed = 0;
  };

  void indexHolders() {
    std::vector<std::pair<std::vector<int64_t>, int32_t>> all;
    for (size_t i = 0; i < tiles.members.size(); ++i) {
      std::vector<int64_t> key = tiles.members[i].from;
      key.push_back(tiles.members[i].addend);
      all.emplace_back(std::move(key), static_cast<int32_t>(i));
    }
    std::sort(all.begin(), all.end());
    for (auto &[key, member] : all) {
      if (holders.empty() || holders.back().key != key)
        holders.push_back({key, {}, 0});
      holders.back().members.push_back(member);
    }
  }

  Holders *find(const std::vector<int64_t> &key) {
    auto it =
        std::lower_bound(holders.begin(), holders.end(), key,
                         [](const Holders &x, const std::vector<int64_t> &k) {
                           return x.key < k;
                         });
    return it != holders.end() && it->key == key ? &*it : nullptr;
  }

  // Visits the source tiles that the member's target tile overlaps.
  void collect(int32_t member) {
    size_t rank = tiles.shape.size();
    const ExchangeTiles::Member &self = tiles.members[member];
    std::vector<int64_t> low(rank), high(rank), first(rank), last(rank);
    for (size_t dim = 0; dim < rank; ++dim) {
      low[dim] = self.to[dim] * tiles.toTile[dim];
      high[dim] = std::min(low[dim] + tiles.toTile[dim], tiles.shape[dim]);
      if (low[dim] >= high[dim])
        return; // nothing but padding
      first[dim] = low[dim] / tiles.fromTile[dim];
      last[dim] = (high[dim] - 1) / tiles.fromTile[dim];
    }
    std::vector<int64_t> at = first;
    while (isComplete) {
      Need need;
      need.receiver = member;
      need.tile = at;
      int64_t volume = 1;
      for (size_t dim = 0; dim < rank; ++dim) {
        int64_t begin = std::max(low[dim], at[dim] * tiles.fromTile[dim]);
        int64_t end = std::min(high[dim], (at[dim] + 1) * tiles.fromTile[dim]);
        need.low.push_back(begin);
        need.sizes.push_back(end - begin);
        volume *= end - begin;
      }
      std::vector<int64_t> key = at;
      key.push_back(0);
      for (int64_t addend = 0; addend < tiles.addends; ++addend) {
        key.back() = addend;
        Holders *source = find(key);
        if (!source) {
          isComplete = false;
          return;
        }
        bool own = self.addend == addend && self.from == at;
        need.demand.emplace_back(source - holders.data(),
                                 own ? -1 : source->needed);
        if (!own)
          source->needed += volume;
      }
      needs.push_back(std::move(need));
      size_t dim = rank;
      while (dim > 0 && at[dim - 1] == last[dim - 1])
        --dim;
      if (dim == 0)
        return;
      ++at[dim - 1];
      for (; dim < rank; ++dim)
        at[dim] = first[dim];
    }
  }

  bool holds(const Need &need, int32_t member) const {
    return tiles.members[member].from == need.tile;
  }

  static int64_t volumeOf(const Need &need, size_t from = 0) {
    int64_t volume = 1;
    for (size_t dim = from; dim < need.sizes.size(); ++dim)
      volume *= need.sizes[dim];
    return volume;
  }

  // Parts of a need, by position in row-major order, with the sender of each.
  struct Part {
    int64_t begin;
    int32_t sender;
  };
  std::vector<Part> partsOf(const Need &need, size_t addend) const {
    auto [index, start] = need.demand[addend];
    if (start < 0)
      return {{0, need.receiver}};
    const Holders &source = holders[index];
    int64_t ways = source.members.size(), volume = volumeOf(need);
    // A cut goes between rows where that unbalances little.
    int64_t share = source.needed / ways, grain = 1;
    for (size_t dim = 0; dim <= need.sizes.size(); ++dim)
      if (int64_t slab = volumeOf(need, dim);
          slab <= std::max<int64_t>(1, share / 16)) {
        grain = slab;
        break;
      }
    std::vector<Part> parts;
    for (int64_t way = 0; way < ways; ++way) {
      int64_t begin = bound(source, way) - start,
              end = bound(source, way + 1) - start;
      if (end <= 0 || begin >= volume || begin == end)
        continue;
      begin = begin <= 0 ? 0 : (begin + grain / 2) / grain * grain;
      if (begin >= volume)
        break;
      if (!parts.empty() && parts.back().begin == begin)
        parts.pop_back();
      parts.push_back({begin, source.members[way]});
    }
    return parts;
  }
  // Where the part of the way-th holder begins. In two factors, so that
  // nothing overflows.
  static int64_t bound(const Holders &source, int64_t way) {
    int64_t ways = source.members.size();
    return source.needed / ways * way + source.needed % ways * way / ways;
  }

  void cut(const Need &need, int32_t self,
           std::vector<ExchangePiece> &all) const {
    std::vector<std::vector<Part>> parts;
    std::vector<int64_t> begins;
    for (size_t addend = 0; addend < need.demand.size(); ++addend) {
      parts.push_back(partsOf(need, addend));
      for (const Part &part : parts.back())
        begins.push_back(part.begin);
    }
    std::sort(begins.begin(), begins.end());
    begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
    begins.push_back(volumeOf(need));
    for (size_t i = 0; i + 1 < begins.size(); ++i) {
      ExchangePiece piece;
      piece.receiver = need.receiver;
      bool mine = self < 0 || self == need.receiver;
      for (const std::vector<Part> &of : parts) {
        size_t at = of.size() - 1;
        while (of[at].begin > begins[i])
          --at;
        piece.senders.push_back(of[at].sender);
        mine |= of[at].sender == self;
      }
      if (!mine)
        continue;
      std::vector<int64_t> low(need.sizes.size(), 0),
          sizes(need.sizes.size(), 1);
      boxes(need, begins[i], begins[i + 1], 0, low, sizes, piece, all);
    }
  }

  // The positions [begin, end) of the need, below the dimensions that are
  // fixed already, as boxes.
  void boxes(const Need &need, int64_t begin, int64_t end, size_t dim,
             std::vector<int64_t> &low, std::vector<int64_t> &sizes,
             const ExchangePiece &proto,
             std::vector<ExchangePiece> &all) const {
    if (dim == need.sizes.size()) {
      ExchangePiece piece = proto;
      const ExchangeTiles::Member &receiver = tiles.members[proto.receiver];
      for (size_t d = 0; d < dim; ++d) {
        int64_t at = need.low[d] + low[d];
        piece.srcAt.push_back(at - need.tile[d] * tiles.fromTile[d]);
        piece.dstAt.push_back(at - receiver.to[d] * tiles.toTile[d]);
      }
      piece.sizes = sizes;
      all.push_back(std::move(piece));
      return;
    }
    int64_t slab = volumeOf(need, dim + 1);
    auto down = [&](int64_t index, int64_t count, int64_t from, int64_t to) {
      low[dim] = index;
      sizes[dim] = count;
      if (from == 0 && to == slab)
        for (size_t d = dim + 1; d < need.sizes.size(); ++d) {
          low[d] = 0;
          sizes[d] = need.sizes[d];
        }
      bool whole = from == 0 && to == slab;
      boxes(need, from, to, whole ? need.sizes.size() : dim + 1, low, sizes,
            proto, all);
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

  const ExchangeTiles tiles;
  std::vector<Holders> holders;
  std::vector<Need> needs;
  bool isComplete = true;
};

// The position on the sub-axes of a rank with these coordinates on the mesh's
// axes, the first one slowest, and how many positions there are.
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

// What the members do, given the coordinates of each on the mesh's axes.
inline ExchangeTiles
exchangeTiles(const std::vector<MeshAxis> &mesh, const Exchange &exchange,
              const std::vector<std::vector<int64_t>> &coordinates) {
  ExchangeTiles tiles;
  tiles.shape = exchange.shape;
  tiles.addends = positionsOn(exchange.partial);
  for (size_t dim = 0; dim < exchange.shape.size(); ++dim) {
    auto tile = [&](const std::vector<SubAxis> &axes) {
      int64_t ways = positionsOn(axes);
      // An empty dimension has tiles, too, that a position can be divided by.
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
    member.addend = positionOn(exchange.partial, mesh, at);
  }
  return tiles;
}

} // namespace cleave::program

#endif // CLEAVE_EXCHANGE_H
