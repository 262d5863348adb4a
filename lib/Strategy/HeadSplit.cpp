// How the ranks of a mesh axis share the heads of attention.

#include "HeadSplit.h"

#include "cleave/Dialect/Dist/IR/Sharding.h"

using namespace cleave;
using namespace cleave::strategy;

static int64_t padded(Heads heads, int64_t ways) {
  ways *= heads.ways;
  return dist::tileSize(heads.size, ways) * ways;
}

HeadSplit strategy::splitHeads(Heads n, Heads g, int64_t ranks) {
  HeadSplit best;
  for (int64_t ways = ranks; ways >= 1; --ways) {
    if (ranks % ways != 0)
      continue;
    int64_t size = padded(n, ways) * padded(g, ranks / ways);
    if (!best.padded || size < best.padded)
      best = {ways, ranks / ways, size};
  }
  return best;
}
