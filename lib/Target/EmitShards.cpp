// Assigns arenas to the parameters that the pipeline action UNSHARD gathers and
// RESHARD frees.

#include "EmitPipeline.h"

#include "llvm/ADT/BitVector.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::target;
using namespace cleave::pipeline;

/// Returns the positions in a rank's list of actions at which the gathered
/// parameters of the stage are in memory: from the stage's UNSHARD to its
/// RESHARD, inclusive.
static llvm::BitVector gatheredPlaces(ArrayRef<LoweredAction> list, int stage) {
  llvm::BitVector places(list.size());
  bool holds = false;
  for (auto [place, entry] : llvm::enumerate(list)) {
    bool own = entry.action.stage == stage;
    holds |= own && entry.action.kind == ActionKind::Unshard;
    places[place] = holds;
    holds &= !(own && entry.action.kind == ActionKind::Reshard);
  }
  return places;
}

int32_t PipelineEmitter::gatheredArena(int rank, int stage, int64_t bytes) {
  llvm::BitVector own = gatheredPlaces(table.actions[rank], stage);
  for (auto &[arena, stages] : gathered[rank]) {
    if (llvm::any_of(stages, [&](int other) {
          return own.anyCommon(gatheredPlaces(table.actions[rank], other));
        }))
      continue;
    stages.push_back(stage);
    program::Arena &shared = program.arenas[arena];
    shared.name += "." + std::to_string(stage);
    shared.size = std::max(shared.size, bytes);
    return arena;
  }
  int32_t arena = program.arenas.size();
  program.arenas.push_back({"gathered." + std::to_string(stage),
                            program::Lifespan::Slots, bytes, rank});
  gathered[rank].push_back({arena, {stage}});
  return arena;
}
