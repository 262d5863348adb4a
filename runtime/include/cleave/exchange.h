// Who sends what to whom in an exchange: every member's target tile is
// assembled from boxes of the tiles that members hold. The compiler counts with
// the same boxes that the runtime moves.
//
// Tile i of a dimension of N elements cut into tiles of T holds the elements
// from i * T on, cut off at N. Members that hold the same tile (of the same
// addend) share its sending: what others need of it, laid end to end in the
// order of the receivers, is cut into equal parts.
//
// Where the target has addends itself, every element of each addend of the
// source is given to one of them, the same on all members, and is zero in the
// others: to the one of which most members hold it already. In two rounds every
// element is first assembled by one of the members that are to have it, one
// that holds it (or an addend of it) if it can be, and goes from there to the
// others. What several members (or addends) can take they take in equal parts.
#ifndef CLEAVE_EXCHANGE_H
#define CLEAVE_EXCHANGE_H

#include "cleave/program.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace cleave::program {

// How the tensor lies on the members of a group, before and after.
struct ExchangeTiles {
  struct Member {
    std::vector<int64_t> from, to; // which tile, per dimension
    int64_t addend = 0;            // which addend of the source
    int64_t toAddend = 0;          // which one of the target
  };
  std::vector<int64_t> shape, fromTile, toTile;
  int64_t addends = 1, toAddends = 1, rounds = 1;
  std::vector<Member> members;
};

// A box of the receiver's tile: the reduction of the boxes of the senders, one
// for each addend that it takes, in this order; zero where there is no sender.
// `srcAt` and `dstAt` are its first element in the tiles of sender and
// receiver. In the second round the sender's tile is its target tile.
struct ExchangePiece {
  int32_t receiver = 0, round = 0;
  std::vector<int32_t> senders;
  std::vector<int64_t> srcAt, dstAt, sizes;

  int64_t count() const {
    int64_t count = 1;
    for (int64_t size : sizes)
      count *= size;
    return count;
  }
};

// Cuts `total` positions into equal parts, one for each of `ways`. Those of a
// box from `begin` to `end` in row-major order are the ones from `start` on.
// Calls body(low, high, way) for the parts of the box in their order. A cut
// goes between rows where that unbalances little.
template <class Sizes, class Body>
void shareBox(const Sizes &sizes, int64_t begin, int64_t end, int64_t start,
              int64_t total, int64_t ways, Body body) {
  // What is over goes to the last ones.
  int64_t each = total / ways, small = ways - total % ways;
  auto bound = [&](int64_t way) {
    return each * way + std::max<int64_t>(0, way - small);
  };
  int64_t grain = 1, slab = 1, most = std::max<int64_t>(1, each / 16);
  for (size_t dim = sizes.size(); dim-- > 0 && slab * sizes[dim] <= most;)
    grain = slab *= sizes[dim];
  // The part that holds the first position.
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

class ExchangePlan {
public:
  explicit ExchangePlan(const ExchangeTiles &tiles) : tiles(tiles) {
    indexHolders();
    for (size_t member = 0; member < tiles.members.size(); ++member)
      collect(static_cast<int32_t>(member));
    if (!isComplete)
      return;
    if (tiles.rounds > 1)
      chooseMembers();
    else if (tiles.toAddends > 1)
      chooseAddends();
    for (Need &need : needs)
      demand(need);
  }

  // False when some element that is needed is held by no member.
  bool complete() const { return isComplete; }

  // The pieces that `self` sends or receives, those of all for -1. Members see
  // common pieces in the same order.
  std::vector<ExchangePiece> pieces(int32_t self = -1) const {
    std::vector<ExchangePiece> all;
    if (!isComplete)
      return all;
    for (const Need &need : needs)
      if (self < 0 || need.receiver == self || sends(need, self))
        cut(need, self, all);
    return all;
  }

private:
  using Index = std::vector<int64_t>;
  enum Kind { Take, Zero, Copy };
  // What a receiver takes of one source tile: the positions [begin, end) of a
  // box, in row-major order.
  struct Need {
    int32_t receiver = 0;
    Index tile, low, sizes; // `low` in the whole tensor
    int64_t begin = 0, end = 0;
    Kind kind = Take;
    int32_t owner = -1; // Copy: who has it after the first round
    // Take: addends of the source; all of them where none is named.
    std::vector<int64_t> addends;
    // For each of these: its class of holders, and where the need begins among
    // all that is needed of it; -1: the receiver holds it.
    std::vector<std::pair<size_t, int64_t>> demand;
  };
  // Members that hold the same tile of the same addend.
  struct Holders {
    Index key;
    std::vector<int32_t> members;
    int64_t needed = 0;
  };

  void indexHolders() {
    std::vector<std::pair<Index, int32_t>> all;
    for (size_t i = 0; i < tiles.members.size(); ++i) {
      Index key = tiles.members[i].from;
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

  Holders *find(const Index &key) {
    auto it = std::lower_bound(
        holders.begin(), holders.end(), key,
        [](const Holders &x, const Index &k) { return x.key < k; });
    return it != holders.end() && it->key == key ? &*it : nullptr;
  }

  // Visits the source tiles that the member's target tile overlaps.
  void collect(int32_t member) {
    size_t rank = tiles.shape.size();
    const ExchangeTiles::Member &self = tiles.members[member];
    Index low(rank), high(rank), first(rank), last(rank);
    for (size_t dim = 0; dim < rank; ++dim) {
      low[dim] = self.to[dim] * tiles.toTile[dim];
      high[dim] = std::min(low[dim] + tiles.toTile[dim], tiles.shape[dim]);
      if (low[dim] >= high[dim])
        return; // nothing but padding
      first[dim] = low[dim] / tiles.fromTile[dim];
      last[dim] = (high[dim] - 1) / tiles.fromTile[dim];
    }
    Index at = first;
    while (isComplete) {
      Need need;
      need.receiver = member;
      need.tile = at;
      for (size_t dim = 0; dim < rank; ++dim) {
        int64_t begin = std::max(low[dim], at[dim] * tiles.fromTile[dim]);
        int64_t end = std::min(high[dim], (at[dim] + 1) * tiles.fromTile[dim]);
        need.low.push_back(begin);
        need.sizes.push_back(end - begin);
      }
      need.end = volumeOf(need);
      Index key = at;
      key.push_back(0);
      for (; key.back() < tiles.addends; ++key.back())
        isComplete &= find(key) != nullptr;
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

  // Enters what the need takes of each addend.
  void demand(Need &need) {
    if (need.kind != Take)
      return;
    const ExchangeTiles::Member &self = tiles.members[need.receiver];
    Index key = need.tile;
    key.push_back(0);
    for (int64_t &addend = key.back(); addend < tiles.addends; ++addend) {
      if (!need.addends.empty() &&
          !std::binary_search(need.addends.begin(), need.addends.end(), addend))
        continue;
      Holders *source = find(key);
      bool own = self.addend == addend && self.from == need.tile;
      need.demand.emplace_back(source - holders.data(),
                               own ? -1 : source->needed);
      if (!own)
        source->needed += need.end - need.begin;
    }
  }

  // Parts of a need, by position in row-major order, and whose each is.
  struct Part {
    int64_t begin, end, of;
  };
  // Where a target and a source tile meet: who needs the box, who can take it
  // (members in two rounds, addends of the target else), and how many of those
  // hold it.
  struct Box {
    std::vector<size_t> needs;
    std::set<int64_t> takers;
    std::map<int64_t, std::map<int64_t, int64_t>>
        holding;                          // by addend, by taker
    std::vector<std::vector<Part>> parts; // that are taken, by addend
  };
  using Boxes =
      std::map<std::pair<Index, Index>, Box>; // target tile, source tile

  template <class Taker> Boxes meet(Taker takerOf) const {
    Boxes boxes;
    for (size_t i = 0; i < needs.size(); ++i) {
      const ExchangeTiles::Member &self = tiles.members[needs[i].receiver];
      Box &box = boxes[{self.to, needs[i].tile}];
      int64_t taker = takerOf(needs[i].receiver);
      box.needs.push_back(i);
      box.takers.insert(taker);
      if (self.from == needs[i].tile)
        ++box.holding[tiles.rounds > 1 ? 0 : self.addend][taker];
    }
    return boxes;
  }

  // Shares boxes among their takers, each addend by itself: those who hold
  // most.
  void shareOut(Boxes &boxes, int64_t addends) const {
    // Boxes that no taker holds are laid end to end. Others are cut each by
    // itself: of members with one addend each holds another box.
    std::map<std::pair<Index, std::vector<int64_t>>,
             std::vector<std::pair<Box *, int64_t>>>
        shared;
    for (auto &[key, box] : boxes) {
      box.parts.resize(addends);
      for (int64_t addend = 0; addend < addends; ++addend) {
        std::vector<int64_t> takers;
        Index target = key.first;
        int64_t most = 0;
        for (auto [taker, count] : box.holding[addend]) {
          if (count > most)
            takers.clear();
          most = std::max(most, count);
          if (count == most)
            takers.push_back(taker);
        }
        if (takers.empty()) {
          takers.assign(box.takers.begin(), box.takers.end());
        } else {
          target.insert(target.end(), key.second.begin(), key.second.end());
          target.push_back(addend);
        }
        shared[{target, takers}].emplace_back(&box, addend);
      }
    }
    std::map<std::pair<Index, int64_t>, int64_t> loads; // by target tile, taker
    for (auto &[key, list] : shared) {
      int64_t total = 0, start = 0;
      for (auto [box, addend] : list)
        total += volumeOf(needs[box->needs[0]]);
      // What is over goes to the last: those who have taken least so far.
      Index target(key.first.begin(), key.first.begin() + tiles.shape.size());
      std::vector<int64_t> takers = key.second;
      std::stable_sort(takers.begin(), takers.end(), [&](int64_t a, int64_t b) {
        return loads[{target, a}] > loads[{target, b}];
      });
      for (auto [box, addend] : list) {
        const Need &first = needs[box->needs[0]];
        box->parts[addend] =
            share(first, 0, volumeOf(first), start, total, takers);
        for (const Part &part : box->parts[addend])
          loads[{target, part.of}] += part.end - part.begin;
        start += volumeOf(first);
      }
    }
  }

  // Cuts needs into what the receiver assembles in the first round, what it
  // copies in the second, and zeros.
  void chooseMembers() {
    Boxes boxes = meet([](int32_t member) { return int64_t(member); });
    shareOut(boxes, 1);
    std::vector<Need> chosen;
    for (auto &[key, box] : boxes)
      for (const Part &part : box.parts[0])
        for (size_t index : box.needs) {
          Need need = needs[index];
          auto owner = static_cast<int32_t>(part.of);
          need.begin = part.begin;
          need.end = part.end;
          if (need.receiver != owner) {
            bool copies = tiles.members[need.receiver].toAddend ==
                          tiles.members[owner].toAddend;
            need.kind = copies ? Copy : Zero;
            need.owner = owner;
          }
          chosen.push_back(std::move(need));
        }
    needs = std::move(chosen);
  }

  // Cuts needs by the addends of the source that the receiver's one takes.
  void chooseAddends() {
    Boxes boxes =
        meet([&](int32_t member) { return tiles.members[member].toAddend; });
    shareOut(boxes, tiles.addends);
    std::vector<Need> chosen;
    for (auto &[key, box] : boxes) {
      std::set<int64_t> cuts;
      for (const std::vector<Part> &parts : box.parts)
        for (const Part &part : parts)
          cuts.insert(part.begin);
      for (auto cut = cuts.begin(); cut != cuts.end(); ++cut)
        for (size_t index : box.needs) {
          Need need = needs[index];
          need.begin = *cut;
          need.end = std::next(cut) == cuts.end() ? need.end : *std::next(cut);
          for (int64_t addend = 0; addend < tiles.addends; ++addend)
            for (const Part &part : box.parts[addend])
              if (part.begin <= *cut && *cut < part.end &&
                  part.of == tiles.members[need.receiver].toAddend)
                need.addends.push_back(addend);
          need.kind = need.addends.empty() ? Zero : Take;
          chosen.push_back(std::move(need));
        }
    }
    needs = std::move(chosen);
  }

  bool sends(const Need &need, int32_t member) const {
    return need.kind == Take   ? tiles.members[member].from == need.tile
           : need.kind == Copy ? need.owner == member
                               : false;
  }

  static int64_t volumeOf(const Need &need, size_t from = 0) {
    int64_t volume = 1;
    for (size_t dim = from; dim < need.sizes.size(); ++dim)
      volume *= need.sizes[dim];
    return volume;
  }

  template <class Takers>
  static std::vector<Part> share(const Need &need, int64_t begin, int64_t end,
                                 int64_t start, int64_t total,
                                 const Takers &takers) {
    std::vector<Part> parts;
    shareBox(need.sizes, begin, end, start, total, int64_t(takers.size()),
             [&](int64_t low, int64_t high, int64_t way) {
               parts.push_back({low, high, takers[way]});
             });
    return parts;
  }

  std::vector<Part> partsOf(const Need &need, size_t addend) const {
    auto [index, start] = need.demand[addend];
    if (start < 0)
      return {{need.begin, need.end, need.receiver}};
    const Holders &source = holders[index];
    return share(need, need.begin, need.end, start, source.needed,
                 source.members);
  }

  void cut(const Need &need, int32_t self,
           std::vector<ExchangePiece> &all) const {
    std::vector<std::vector<Part>> parts;
    if (need.kind == Take)
      for (size_t addend = 0; addend < need.demand.size(); ++addend)
        parts.push_back(partsOf(need, addend));
    if (need.kind == Copy)
      parts.push_back({{need.begin, need.end, need.owner}});
    std::vector<int64_t> begins = {need.begin};
    for (const std::vector<Part> &of : parts)
      for (const Part &part : of)
        begins.push_back(part.begin);
    std::sort(begins.begin(), begins.end());
    begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
    begins.push_back(need.end);
    for (size_t i = 0; i + 1 < begins.size(); ++i) {
      ExchangePiece piece;
      piece.receiver = need.receiver;
      piece.round = need.kind == Copy;
      bool mine = self < 0 || self == need.receiver;
      for (const std::vector<Part> &of : parts) {
        size_t at = of.size() - 1;
        while (of[at].begin > begins[i])
          --at;
        piece.senders.push_back(static_cast<int32_t>(of[at].of));
        mine |= of[at].of == self;
      }
      if (!mine)
        continue;
      Index low(need.sizes.size(), 0), sizes(need.sizes.size(), 1);
      boxes(need, begins[i], begins[i + 1], 0, low, sizes, piece, all);
    }
  }

  // The positions [begin, end) of the need, below the dimensions that are
  // fixed already, as boxes.
  void boxes(const Need &need, int64_t begin, int64_t end, size_t dim,
             Index &low, Index &sizes, const ExchangePiece &proto,
             std::vector<ExchangePiece> &all) const {
    if (dim == need.sizes.size()) {
      ExchangePiece piece = proto;
      const ExchangeTiles::Member &receiver = tiles.members[proto.receiver];
      for (size_t d = 0; d < dim; ++d) {
        int64_t at = need.low[d] + low[d];
        piece.dstAt.push_back(at - receiver.to[d] * tiles.toTile[d]);
        piece.srcAt.push_back(need.kind == Copy
                                  ? piece.dstAt[d]
                                  : at - need.tile[d] * tiles.fromTile[d]);
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
  tiles.toAddends = positionsOn(exchange.toPartial);
  tiles.rounds = exchange.rounds;
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
    member.toAddend = positionOn(exchange.toPartial, mesh, at);
  }
  return tiles;
}

} // namespace cleave::program

#endif // CLEAVE_EXCHANGE_H
