// How the ranks of a mesh axis share the heads of attention.

#ifndef CLEAVE_LIB_STRATEGY_HEADSPLIT_H
#define CLEAVE_LIB_STRATEGY_HEADSPLIT_H

#include <cstdint>

namespace cleave::strategy {

/// A dimension of heads: its size, and the number of tiles into which other
/// axes already split it.
struct Heads {
  int64_t size = 1, ways = 1;
};

/// The number of tiles into which the KV heads (`n`) and the query heads per KV
/// head (`g`) are split; the product of both is the number of ranks. `padded`
/// is the number of query heads, including the heads that are added as padding.
struct HeadSplit {
  int64_t n = 1, g = 1, padded = 0;
};

/// Chooses how `ranks` ranks share the KV heads `n` and the query heads `g` per
/// KV head. The choice has the least padding; among choices with equal padding,
/// it splits the KV heads into the most tiles, because ranks that split `g`
/// hold copies of the same keys and values.
HeadSplit splitHeads(Heads n, Heads g, int64_t ranks);

} // namespace cleave::strategy

#endif
