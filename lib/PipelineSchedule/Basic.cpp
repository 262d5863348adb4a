// The schedules GPipe and 1F1B, which have one stage per rank and do not split
// backward passes.

#include "Generators.h"

#include <algorithm>

namespace cleave::pipeline {

// GPipe: all forward passes, then all backward passes.
void fillGPipe(Table &table) {
  for (int rank = 0; rank < table.ranks; ++rank)
    for (ActionKind kind : {ActionKind::F, ActionKind::B})
      for (int m = 0; m < table.microbatches; ++m)
        table.actions[rank].push_back({rank, kind, m});
}

// 1F1B: each rank first runs the forward passes that it can run until the first
// gradient arrives; then it runs a backward pass before each further forward
// pass.
void fill1F1B(Table &table) {
  for (int rank = 0; rank < table.ranks; ++rank) {
    int ahead = std::min(table.microbatches, table.ranks - rank);
    for (int m = 0; m < table.microbatches + ahead; ++m) {
      if (m >= ahead)
        table.actions[rank].push_back({rank, ActionKind::B, m - ahead});
      if (m < table.microbatches)
        table.actions[rank].push_back({rank, ActionKind::F, m});
    }
  }
}

} // namespace cleave::pipeline
