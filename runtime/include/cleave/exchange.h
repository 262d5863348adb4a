// Computes who sends what to whom in an exchange: the target tile of every
// member is assembled from boxes of the source tiles that members hold. The
// compiler counts bytes with the same boxes that the runtime moves. A dimension
// of N elements is cut into tiles of T elements: tile i holds the elements from
// i * T on, cut off at N. Members that hold the same tile of the same partial
// sum share the work of sending it. The elements that other members need from
// this tile are laid end to end, in the order of the receivers, and this
// sequence is cut into equal parts, one for each holder. If the target
// consists of partial sums, each element of each partial sum of the source is
// added to exactly one of them, and counts as zero in the others. All members
// choose the same one, preferably one whose members already hold the element.
// An exchange of two rounds assembles every element at one member first,
// preferably at one that already holds it or a partial sum of it. In the second
// round this member sends the element to the other members that need it. If
// several members (or partial sums) could do the work, each gets an equal part.
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

// A box of the receiver's target tile, assembled in one round. Its value is the
// reduction over the boxes of `senders`, in this order: one sender for each
// partial sum. Without senders it is zero. `srcAt` is the box's first element
// in a sender's source tile (in the second round: in its target tile), `dstAt`
// that in the receiver's target tile.
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

  // Returns false if some element that is needed is held by no member.
  bool complete() const { return isComplete; }

  // Returns the pieces that member `self` sends or receives, or all pieces if
  // `self` is -1. The sender and the receiver of several pieces list them in
  // the same order.
  std::vector<ExchangePiece> pieces(int32_t self = -1) const {
    std::vector<ExchangePiece> all;
    for (const Need &need : needs)
      if (self < 0 || need.receiver == self || sends(need, self))
        cut(need, self, all);
    return all;
  }

  // Calls body(sender, receiver, round, elements) for all transfers, without
  // computing boxes. A pair of members may be visited several times.
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
  // The members that hold the same tile of the same partial sum. The list has
  // one entry for each tile and partial sum; the entries of one tile are
  // adjacent.
  struct Holders {
    Index key;
    std::vector<int32_t> members;
    int64_t needed = 0;
  };
  // Where a target and a source tile meet.
  struct Box {
    Index source, low, sizes; // `low` in the whole tensor
    int64_t volume = 1;
    size_t holders = 0; // those of the first partial sum
  };
  // A target tile, the members that need it, and its boxes: one box for each
  // source tile from `first` to `last`, the last dimension fastest.
  struct Target {
    std::vector<int32_t> members;
    Index first, last;
    size_t box = 0, boxes = 0;
  };
  // The elements [begin, end) of one box, in row-major order, that one receiver
  // needs. There may be as many needs as there are pairs of members.
  struct Need {
    int32_t receiver = 0, owner = -1; // Copy: who has it after the first round
    int32_t box = 0, count = 0; // Take: so many partial sums of the source,
    size_t first = 0;           // in `terms` from here on
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

  // Adds to `target` one box for each source tile that the target tile
  // overlaps.
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

  // If the target is no partial sum: every member of a target tile needs all
  // partial sums of the tile's boxes.
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

  // Adds a need for the partial sums `taken` of the source, or for all of them
  // if `taken` is empty.
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

  // The members that hold a tile of a partial sum lay all needed elements of it
  // end to end, one need after the other, and share the work of sending them.
  // This function appends `need` to these sequences. For each partial sum that
  // `need` takes, it adds to `starts` the position at which the elements of
  // `need` begin, or -1 if the receiver itself holds the tile.
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

  // The elements [begin, end) of a box, in row-major order. `of` is the taker
  // that assembles them (see shareOut()).
  struct Part {
    int64_t begin, end, of;
  };

  // Distributes the boxes of a target tile over "takers", each of which
  // assembles some boxes. A taker is a member if the exchange has two rounds,
  // else a partial sum of the target; takerOf(member) returns its number. A box
  // goes to the takers that hold it, or to all takers if none holds it. If
  // `ways` is not 1, it is the number of the source's partial sums, and the
  // boxes of each partial sum are distributed separately. Returns the parts of
  // each box, ordered by box, then by partial sum.
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
    // Boxes that no taker holds are laid end to end and cut into one equal part
    // for each taker.
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
    // A box that some takers hold is divided among these alone. The last parts
    // get the remainder of the division. So takers are sorted by their number
    // of elements so far, and those with the fewest come last.
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

  // For two rounds: divides each box into a part for each member, which this
  // member assembles in the first round. Other members copy the part in the
  // second round or, if they hold another partial sum of the target, set it to
  // zero.
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

  // For one round into a partial sum: decides which partial sums of the source
  // are added to each partial sum of the target.
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
          std::map<int64_t, std::vector<int64_t>> taken; // by who takes them
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
  // them sends. The receiver must not hold them itself.
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

  // Sets the position of a piece in the tiles of sender and receiver, and its
  // sizes. The piece begins at element `low` of the box of `need`.
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
  std::vector<size_t> holding; // of each member, the holders it is one of
  std::map<Index, Target> targets;
  std::vector<Box> boxes;
  std::vector<Need> needs;
  // For each partial sum of each need: the number of the partial sum (`terms`),
  // and where the need begins in the sequence that its holders send, or -1 if
  // the receiver is a holder (`starts`).
  std::vector<int32_t> terms;
  std::vector<int64_t> starts;
  bool isComplete = true;
};

} // namespace cleave::program

#endif // CLEAVE_EXCHANGE_H
