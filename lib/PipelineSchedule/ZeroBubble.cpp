// Schedules with one stage per rank that defer weight gradients to fill the
// bubbles (Qi et al., Zero Bubble Pipeline Parallelism).

#include "Generators.h"

#include <algorithm>

namespace cleave::pipeline {

namespace {

// Fills the list of one rank. It begins with `ahead` forward passes; then an
// input gradient (I) precedes each further forward pass. The weight gradient
// (W) of a microbatch follows its I by `lag` microbatches, so that a rank holds
// at most ahead + lag activations.
void fillRank(Table &table, int rank, int ahead, int lag) {
  const int m = table.microbatches;
  std::vector<Action> &list = table.actions[rank];
  ahead = std::min(ahead, m);
  for (int k = 0; k < ahead; ++k)
    list.push_back({rank, ActionKind::F, k});
  for (int k = 0; k < m + lag; ++k) {
    if (k < m)
      list.push_back({rank, ActionKind::I, k});
    if (k >= lag)
      list.push_back({rank, ActionKind::W, k - lag});
    if (k + ahead < m)
      list.push_back({rank, ActionKind::F, k + ahead});
  }
}

} // namespace

// ZB-H1: has as many forward passes before the first backward pass as 1F1B, and
// the same memory.
void fillZeroBubble1(Table &table) {
  for (int rank = 0; rank < table.ranks; ++rank)
    fillRank(table, rank, table.ranks - rank, rank);
}

// ZB-H2: has nearly twice as many forward passes before the first backward pass
// as 1F1B, so that no rank waits between its first and its last action.
void fillZeroBubble2(Table &table) {
  for (int rank = 0; rank < table.ranks; ++rank)
    fillRank(table, rank, 2 * (table.ranks - rank) - 1, 2 * rank);
}

} // namespace cleave::pipeline
