// How the ranks of an axis share the heads of attention.

#ifndef CLEAVE_LIB_STRATEGY_HEADSPLIT_H
#define CLEAVE_LIB_STRATEGY_HEADSPLIT_H

#include <cstdint>

namespace cleave::strategy {

/// A dimension of heads, and over how many ranks it is already.
struct Heads {
  int64_t size = 1, ways = 1;
};

/// Ways to split the KV heads, and the query heads of each: their product is
/// the number of ranks. `padded`: query heads with the padding.
struct HeadSplit {
  int64_t n = 1, g = 1, padded = 0;
};

/// Of all ways to share the KV heads `n` and the query heads `g` of each among
/// `ranks`, the one with the least padding, and of these the one that splits
/// the KV heads further: what splits `g` holds copies of keys and values.
HeadSplit splitHeads(Heads n, Heads g, int64_t ranks);

} // namespace cleave::strategy

#endif
