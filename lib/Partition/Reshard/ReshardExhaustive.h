//===- ReshardExhaustive.h - all plans of up to three moves -----*- C++ -*-===//

#ifndef CLEAVE_LIB_PARTITION_RESHARD_RESHARDEXHAUSTIVE_H
#define CLEAVE_LIB_PARTITION_RESHARD_RESHARDEXHAUSTIVE_H

#include "ReshardCost.h"

#include <optional>
#include <vector>

namespace cleave::partition {

/// All layouts of tensors with `rank` dimensions, partial sums of sums
/// included; none where there are more than `most`.
std::vector<dist::Layout> layoutsOf(const dist::MeshAxes &mesh, unsigned rank,
                                    size_t most);

/// A reshard, and what is asked of plans for it.
struct ReshardProblem {
  const dist::MeshAxes &mesh;
  const cost::LinkModel &model;
  llvm::ArrayRef<int64_t> shape;
  int64_t elementBytes;
  const dist::Layout &from, &to;
  /// Tiles of a layout on the way have no more elements than this.
  double largestTile;
  /// Whether the value may be whole on all ranks on the way.
  bool mayReplicate;

  bool allows(const dist::Layout &layout) const;
  /// Seconds, and a little for what ranks receive on average.
  double cost(const MoveCost &moved) const;
  MoveCost measure(llvm::ArrayRef<Move> moves) const;
};

/// The plan of up to three moves through `layouts` that costs least, of those
/// by which a rank receives at most `mostReceived` elements on average; none
/// where each costs `limit` or more.
std::optional<llvm::SmallVector<Move>>
cheapestOfAll(const ReshardProblem &problem,
              llvm::ArrayRef<dist::Layout> layouts, double limit,
              double mostReceived);

} // namespace cleave::partition

#endif
