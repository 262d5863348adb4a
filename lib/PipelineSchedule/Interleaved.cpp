// Several stages per rank in Loop placement.

#include "Generators.h"

#include <algorithm>

namespace cleave::pipeline {

void dropMicrobatches(Table &table) {
  for (std::vector<Action> &list : table.actions)
    std::erase_if(list, [&](const Action &action) {
      return action.microbatch >= table.microbatches;
    });
}

// 1F1B over chunks: groups of `ranks` microbatches go through one chunk after
// another, and their gradients in the opposite order. If the last group is
// incomplete, it is scheduled like a complete group, and the missing
// microbatches are dropped.
void fillInterleaved(Table &table) {
  const int p = table.ranks, v = table.chunks(), m = table.microbatches;
  if (v == 1)
    return fill1F1B(table);
  const int groups = (m + p - 1) / p, total = groups * p * v;
  auto chunkAndMicrobatch = [&](int k) {
    return std::pair(k % (p * v) / p, k / (p * v) * p + k % p);
  };
  for (int rank = 0; rank < p; ++rank) {
    int ahead = std::min(2 * (p - rank - 1) + (v - 1) * p + 1, total);
    for (int k = 0; k < total + ahead; ++k) {
      if (k >= ahead) {
        auto [chunk, microbatch] = chunkAndMicrobatch(k - ahead);
        table.actions[rank].push_back(
            {(v - 1 - chunk) * p + rank, ActionKind::B, microbatch});
      }
      if (k < total) {
        auto [chunk, microbatch] = chunkAndMicrobatch(k);
        table.actions[rank].push_back(
            {chunk * p + rank, ActionKind::F, microbatch});
      }
    }
  }
  dropMicrobatches(table);
}

// Breadth-first schedule: all microbatches go through one chunk before any goes
// through the next chunk.
void fillLoopedBfs(Table &table) {
  const int p = table.ranks, v = table.chunks();
  for (int rank = 0; rank < p; ++rank) {
    for (int chunk = 0; chunk < v; ++chunk)
      for (int m = 0; m < table.microbatches; ++m)
        table.actions[rank].push_back({chunk * p + rank, ActionKind::F, m});
    for (int chunk = v; chunk-- > 0;)
      for (int m = 0; m < table.microbatches; ++m)
        table.actions[rank].push_back({chunk * p + rank, ActionKind::B, m});
  }
}

} // namespace cleave::pipeline
