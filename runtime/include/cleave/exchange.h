// Computes which member sends which elements to which member in an exchange,
// the collective that changes how a tensor is tiled over a group of ranks
// (members). The target tile of every member is assembled from rectangular
// ranges of elements (boxes) of the members' source tiles. The compiler counts
// bytes with the same boxes that the runtime moves. Members that hold the same
// tile of the same partial sum ("holders") share the work of sending it: the
// elements that others need from it form one sequence, in the order of the
// receivers, and each holder sends an equal part of this sequence.
//
// If the target consists of partial sums, each element of each partial sum of
// the source is added to exactly one sum of the target, and is zero in the
// others. All members choose the same sum, preferably one whose members hold
// the element.
//
// An exchange of two rounds first assembles every element at one member,
// preferably at one that already holds it or a partial sum of it. In the second
// round this member sends it to the others that need it. If several members (or
// partial sums) could do the work, each gets an equal part.
#ifndef CLEAVE_EXCHANGE_H
#define CLEAVE_EXCHANGE_H

#include "cleave/exchange_tiles.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace cleave::program {

// A rectangular range (box) of the receiver's target tile, assembled in one
// round. Its value is the reduction over the same box at each of `senders`, in
// order, one sender for each partial sum; without senders it is zero. `srcAt`
// is its position in a sender's source tile (in the second round, in the
// sender's target tile), `dstAt` its position in the receiver's target tile.
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

class ExchangePlan {
public:
  explicit ExchangePlan(const ExchangeTiles &tiles) : tiles(tiles) {
    indexHolders();
    indexTargets();
    if (!isComplete)
      return;
    if (tiles.rounds > 1)
      chooseMembers();
    else if (tiles.toTerms > 1)
      chooseTerms();
    else
      takeAll();
    for (Need &need : needs)
      demand(need);
  }

  // Returns false if a member needs an element that no member holds.
  bool complete() const { return isComplete; }

  // Returns the pieces that member `self` sends or receives, or all pieces if
  // `self` is -1. A sender and a receiver get their pieces in the same order.
  std::vector<ExchangePiece> pieces(int32_t self = -1) const {
    std::vector<ExchangePiece> all;
    for (const Need &need : needs)
      if (self < 0 || need.receiver == self || sends(need, self))
        cut(need, self, all);
    return all;
  }

  // Calls body(sender, receiver, round, elements) with the number of elements
  // of every transfer. Two members may have several transfers.
  template <class Body> void forTransfers(Body body) const {
    for (const Need &need : needs) {
      if (need.kind == Copy)
        body(need.owner, need.receiver, 1, need.end - need.begin);
      for (int32_t i = 0; i < need.count; ++i)
        if (starts[need.first + i] >= 0)
          forParts(need, i, [&](int64_t low, int64_t high, int32_t sender) {
            body(sender, need.receiver, 0, high - low);
          });
    }
  }

private:
  using Index = std::vector<int64_t>;
  enum Kind { Take, Zero, Copy };
  // The members that hold the same tile of the same partial sum of the source,
  // and how many elements other members need from it. The list has one entry
  // for each tile and partial sum; the entries of one tile are adjacent.
  struct Holders {
    Index key;
    std::vector<int32_t> members;
    int64_t needed = 0;
  };
  // The range of elements in which a target and a source tile overlap.
  struct Box {
    Index source, low, sizes; // `low` in the whole tensor
    int64_t volume = 1;
    size_t holders = 0; // index in `holders` of the first partial sum
  };
  // A target tile, the members that need it, and its boxes: one box for each
  // source tile from `first` to `last`, the last dimension fastest.
  struct Target {
    std::vector<int32_t> members;
    Index first, last;
    size_t box = 0, boxes = 0;
  };
  // A need: the elements [begin, end) of a box, in row-major order, that one
  // receiver takes from holders, sets to zero, or copies in the second round.
  struct Need {
    int32_t receiver = 0, owner = -1; // Copy: the member to copy from
    int32_t box = 0, count = 0; // Take: number of partial sums of the source;
    size_t first = 0;           // index of the first one in `terms`
    int64_t begin = 0, end = 0;
    Kind kind = Take;
  };

  void indexHolders() {
    std::vector<std::pair<Index, int32_t>> all;
    for (size_t i = 0; i < tiles.members.size(); ++i) {
      Index key = tiles.members[i].from;
      key.push_back(tiles.members[i].term);
      all.emplace_back(std::move(key), static_cast<int32_t>(i));
    }
    std::sort(all.begin(), all.end());
    holding.resize(all.size());
    for (auto &[key, member] : all) {
      if (holders.empty() || holders.back().key != key)
        holders.push_back({key, {}, 0});
      holders.back().members.push_back(member);
      holding[member] = holders.size() - 1;
    }
  }

  void indexTargets() {
    for (size_t member = 0; member < tiles.members.size(); ++member)
      targets[tiles.members[member].to].members.push_back(
          static_cast<int32_t>(member));
    for (auto &[tile, target] : targets)
      collect(tile, target);
  }

  // Adds to `target` one box for each source tile that it overlaps.
  void collect(const Index &tile, Target &target) {
    size_t rank = tiles.shape.size();
    Index low(rank), high(rank);
    target.first = target.last = low;
    target.box = boxes.size();
    for (size_t dim = 0; dim < rank; ++dim) {
      low[dim] = tile[dim] * tiles.toTile[dim];
      high[dim] = std::min(low[dim] + tiles.toTile[dim], tiles.shape[dim]);
      if (low[dim] >= high[dim])
        return; // nothing but padding
      target.first[dim] = low[dim] / tiles.fromTile[dim];
      target.last[dim] = (high[dim] - 1) / tiles.fromTile[dim];
    }
    Index at = target.first;
    while (isComplete) {
      Box box;
      box.source = at;
      for (size_t dim = 0; dim < rank; ++dim) {
        int64_t begin = std::max(low[dim], at[dim] * tiles.fromTile[dim]);
        int64_t end = std::min(high[dim], (at[dim] + 1) * tiles.fromTile[dim]);
        box.low.push_back(begin);
        box.sizes.push_back(end - begin);
        box.volume *= end - begin;
      }
      Index key = at;
      key.push_back(0);
      box.holders = std::lower_bound(holders.begin(), holders.end(), key,
                                     [](const Holders &x, const Index &k) {
                                       return x.key < k;
                                     }) -
                    holders.begin();
      for (int64_t &term = key.back(); term < tiles.terms; ++term)
        isComplete &= box.holders + term < holders.size() &&
                      holders[box.holders + term].key == key;
      boxes.push_back(std::move(box));
      ++target.boxes;
      size_t dim = rank;
      while (dim > 0 && at[dim - 1] == target.last[dim - 1])
        --dim;
      if (dim == 0)
        return;
      ++at[dim - 1];
      for (; dim < rank; ++dim)
        at[dim] = target.first[dim];
    }
  }

  // If the target is not a partial sum: every member of a target tile needs the
  // sum of all partial sums of the source, for each box of the tile.
  void takeAll() {
    for (size_t member = 0; member < tiles.members.size(); ++member) {
      const Target &target = targets.at(tiles.members[member].to);
      for (size_t i = 0; i < target.boxes; ++i) {
        Need need;
        need.receiver = static_cast<int32_t>(member);
        need.box = static_cast<int32_t>(target.box + i);
        need.end = boxes[need.box].volume;
        add(need, {});
      }
    }
  }

  // Appends `need` to `needs`. If its kind is Take, it takes elements of the
  // partial sums `taken` of the source, or of all if `taken` is empty.
  void add(Need need, const std::vector<int64_t> &taken) {
    if (need.kind == Take) {
      need.first = terms.size();
      need.count =
          static_cast<int32_t>(taken.empty() ? tiles.terms : taken.size());
      for (int64_t term = 0; taken.empty() && term < tiles.terms; ++term)
        terms.push_back(static_cast<int32_t>(term));
      terms.insert(terms.end(), taken.begin(), taken.end());
    }
    needs.push_back(need);
  }

  // The holders of a tile send all elements that other members need from it as
  // one sequence. For each partial sum that `need` takes, this function appends
  // the elements of `need` to the sequence of its holders, and adds to `starts`
  // the position at which they begin, or -1 if the receiver is itself a holder.
  void demand(const Need &need) {
    for (int32_t i = 0; i < need.count; ++i) {
      Holders &source = holders[holdersOf(need, i)];
      if (holding[need.receiver] == holdersOf(need, i)) {
        starts.push_back(-1);
        continue;
      }
      starts.push_back(source.needed);
      source.needed += need.end - need.begin;
    }
  }

  size_t holdersOf(const Need &need, int32_t i) const {
    return boxes[need.box].holders + terms[need.first + i];
  }

  // The elements [begin, end) of a box, in row-major order, and the member that
  // sends them or (in shareOut()) the taker that assembles them.
  struct Part {
    int64_t begin, end, of;
  };

  // Divides a target tile among "takers", which assemble its elements: the
  // members of the tile (two rounds) or the partial sums of the target (one
  // round). takerOf(member) returns the number of a member's taker. Each box,
  // the overlap with a source tile, is divided among the takers that already
  // hold it, or among all takers if none does. If `ways` is not 1, it is the
  // number of partial sums of the source, and the boxes of each partial sum are
  // divided separately. Returns the parts of each box, by box and then by
  // partial sum.
  template <class Taker>
  std::vector<std::vector<Part>> shareOut(const Target &target, int64_t ways,
                                          Taker takerOf) const {
    std::set<int64_t> all;
    std::vector<std::set<int64_t>> held(target.boxes * ways);
    for (int32_t member : target.members) {
      const ExchangeTiles::Member &self = tiles.members[member];
      all.insert(takerOf(member));
      size_t at = 0;
      bool meets = target.boxes > 0;
      for (size_t dim = 0; dim < self.from.size(); ++dim) {
        int64_t first = target.first[dim], last = target.last[dim];
        meets &= first <= self.from[dim] && self.from[dim] <= last;
        at = at * (last - first + 1) + (self.from[dim] - first);
      }
      if (meets)
        held[at * ways + (ways > 1 ? self.term : 0)].insert(takerOf(member));
    }
    std::vector<std::vector<Part>> parts(held.size());
    // The boxes that no taker holds are laid end to end as one sequence of
    // elements, and each taker gets an equal part of it.
    std::vector<int64_t> everyone(all.begin(), all.end());
    std::map<int64_t, int64_t> loads;
    int64_t total = 0, start = 0;
    for (size_t i = 0; i < held.size(); ++i)
      total += held[i].empty() ? boxes[target.box + i / ways].volume : 0;
    auto shareOne = [&](size_t i, const std::vector<int64_t> &takers,
                        int64_t start, int64_t total) {
      const Box &box = boxes[target.box + i / ways];
      parts[i] = share(box, 0, box.volume, start, total, takers);
      for (const Part &part : parts[i])
        loads[part.of] += part.end - part.begin;
    };
    for (size_t i = 0; i < held.size(); ++i)
      if (held[i].empty()) {
        shareOne(i, everyone, start, total);
        start += boxes[target.box + i / ways].volume;
      }
    // A box that some takers hold is divided among these alone. If the parts
    // cannot be equal, the last parts are larger by one element. So the takers
    // with the fewest elements so far come last.
    for (size_t i = 0; i < held.size(); ++i) {
      std::vector<int64_t> takers(held[i].begin(), held[i].end());
      std::sort(takers.begin(), takers.end(), [&](int64_t a, int64_t b) {
        return std::pair(-loads[a], a) < std::pair(-loads[b], b);
      });
      if (!takers.empty())
        shareOne(i, takers, 0, boxes[target.box + i / ways].volume);
    }
    return parts;
  }

  // For an exchange of two rounds: decides which member of a target tile
  // assembles which elements in the first round. In the second round the other
  // members copy these elements from it, or set them to zero if they hold
  // another partial sum of the target than this member.
  void chooseMembers() {
    for (auto &[tile, target] : targets) {
      std::vector<std::vector<Part>> parts =
          shareOut(target, 1, [](int32_t member) { return int64_t(member); });
      for (size_t i = 0; i < target.boxes; ++i)
        for (const Part &part : parts[i])
          for (int32_t member : target.members) {
            auto owner = static_cast<int32_t>(part.of);
            Need need;
            need.receiver = member;
            need.box = static_cast<int32_t>(target.box + i);
            need.begin = part.begin;
            need.end = part.end;
            if (member != owner) {
              bool copies =
                  tiles.members[member].toTerm == tiles.members[owner].toTerm;
              need.kind = copies ? Copy : Zero;
              need.owner = owner;
            }
            add(need, {});
          }
    }
  }

  // For an exchange of one round whose target consists of partial sums: decides
  // for each element to which of them each partial sum of the source is added.
  void chooseTerms() {
    for (auto &[tile, target] : targets) {
      std::vector<std::vector<Part>> all =
          shareOut(target, tiles.terms, [&](int32_t member) {
            return tiles.members[member].toTerm;
          });
      for (size_t i = 0; i < target.boxes; ++i) {
        const std::vector<Part> *parts = &all[i * tiles.terms];
        std::vector<int64_t> cuts;
        for (int64_t term = 0; term < tiles.terms; ++term)
          for (const Part &part : parts[term])
            cuts.push_back(part.begin);
        std::sort(cuts.begin(), cuts.end());
        cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
        cuts.push_back(boxes[target.box + i].volume);
        std::vector<size_t> at(tiles.terms, 0);
        for (size_t cut = 0; cut + 1 < cuts.size(); ++cut) {
          std::map<int64_t, std::vector<int64_t>> taken; // by target sum
          for (int64_t term = 0; term < tiles.terms; ++term) {
            while (parts[term][at[term]].end <= cuts[cut])
              ++at[term];
            taken[parts[term][at[term]].of].push_back(term);
          }
          for (int32_t member : target.members) {
            auto mine = taken.find(tiles.members[member].toTerm);
            Need need;
            need.receiver = member;
            need.box = static_cast<int32_t>(target.box + i);
            need.begin = cuts[cut];
            need.end = cuts[cut + 1];
            need.kind = mine == taken.end() ? Zero : Take;
            add(need,
                mine == taken.end() ? std::vector<int64_t>() : mine->second);
          }
        }
      }
    }
  }

  bool sends(const Need &need, int32_t member) const {
    size_t first = boxes[need.box].holders;
    return need.kind == Take   ? holding[member] >= first &&
                                     holding[member] < first + tiles.terms
           : need.kind == Copy ? need.owner == member
                               : false;
  }

  template <class Takers>
  static std::vector<Part> share(const Box &box, int64_t begin, int64_t end,
                                 int64_t start, int64_t total,
                                 const Takers &takers) {
    std::vector<Part> parts;
    shareBox(box.sizes, begin, end, start, total, int64_t(takers.size()),
             [&](int64_t low, int64_t high, int64_t way) {
               parts.push_back({low, high, takers[way]});
             });
    return parts;
  }

  // The receiver of `need` needs the elements [begin, end) of its i-th partial
  // sum. The members that hold this partial sum share the work of sending them:
  // calls body(low, high, sender) for the elements [low, high) that each of
  // them sends. The receiver must not be one of them.
  template <class Body>
  void forParts(const Need &need, int32_t i, Body body) const {
    const Holders &source = holders[holdersOf(need, i)];
    shareBox(boxes[need.box].sizes, need.begin, need.end,
             starts[need.first + i], source.needed,
             int64_t(source.members.size()),
             [&](int64_t low, int64_t high, int64_t way) {
               body(low, high, source.members[way]);
             });
  }

  std::vector<Part> partsOf(const Need &need, int32_t i) const {
    if (starts[need.first + i] < 0)
      return {{need.begin, need.end, need.receiver}};
    std::vector<Part> parts;
    forParts(need, i, [&](int64_t low, int64_t high, int32_t sender) {
      parts.push_back({low, high, sender});
    });
    return parts;
  }

  void cut(const Need &need, int32_t self,
           std::vector<ExchangePiece> &all) const {
    std::vector<std::vector<Part>> parts;
    for (int32_t i = 0; i < need.count; ++i)
      parts.push_back(partsOf(need, i));
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
      forBoxes(boxes[need.box].sizes, begins[i], begins[i + 1],
               [&](const Index &low, const Index &sizes) {
                 all.push_back(placed(need, piece, low, sizes));
               });
    }
  }

  // Returns `piece` with its sizes and its positions in the sender's and the
  // receiver's tile. It begins at index `low` of the box of `need`.
  ExchangePiece placed(const Need &need, ExchangePiece piece, const Index &low,
                       const Index &sizes) const {
    const Box &box = boxes[need.box];
    const ExchangeTiles::Member &receiver = tiles.members[piece.receiver];
    for (size_t dim = 0; dim < box.sizes.size(); ++dim) {
      int64_t at = box.low[dim] + low[dim];
      piece.dstAt.push_back(at - receiver.to[dim] * tiles.toTile[dim]);
      piece.srcAt.push_back(need.kind == Copy
                                ? piece.dstAt[dim]
                                : at - box.source[dim] * tiles.fromTile[dim]);
    }
    piece.sizes = sizes;
    return piece;
  }

  const ExchangeTiles tiles;
  std::vector<Holders> holders;
  std::vector<size_t> holding; // by member: its index in `holders`
  std::map<Index, Target> targets;
  std::vector<Box> boxes;
  std::vector<Need> needs;
  // For each need, one entry for each partial sum of the source that it takes:
  // in `terms` the number of the partial sum; in `starts` the position of the
  // need's elements in the sequence that the holders send, or -1 if the
  // receiver is a holder itself.
  std::vector<int32_t> terms;
  std::vector<int64_t> starts;
  bool isComplete = true;
};

} // namespace cleave::program

#endif // CLEAVE_EXCHANGE_H
