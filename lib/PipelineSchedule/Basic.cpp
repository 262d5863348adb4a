// One stage per rank, whole backward passes: GPipe and 1F1B.

#include "Generators.h"

#include <algorithm>

namespace cleave::pipeline {

// All forward passes, then all backward passes.
void fillGPipe(Table &table) {
  for (int rank = 0; rank < table.ranks; ++rank)
    for (ActionKind kind : {ActionKind::F, ActionKind::B})
      for (int m = 0; m < table.microbatches; ++m)
        table.actions[rank].push_back({rank, kind, m});
}

// Each rank first runs the forward passes that it can run until the first
// gradient arrives, then one backward pass before each further forward pass.
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
