//===- ReshardExhaustive.h - all plans of up to three moves -----*- C++ -*-===//

#ifndef CLEAVE_LIB_PARTITION_RESHARD_RESHARDEXHAUSTIVE_H
#define CLEAVE_LIB_PARTITION_RESHARD_RESHARDEXHAUSTIVE_H

#include "ReshardCost.h"

#include <optional>
#include <vector>

namespace cleave::partition {

/// Returns all layouts of tensors with `rank` dimensions, partial sums
/// included; empty if there are more than `most`.
std::vector<dist::Layout> layoutsOf(const dist::MeshAxes &mesh, unsigned rank,
                                    size_t most);

/// A reshard, and the limits of plans for it.
struct ReshardProblem {
  const dist::MeshAxes &mesh;
  const cost::LinkModel &model;
  llvm::ArrayRef<int64_t> shape;
  int64_t elementBytes;
  const dist::Layout &from, &to;
  /// The largest number of elements that a tile of an intermediate layout may
  /// have.
  double largestTile;
  /// Whether the value may be replicated on all ranks in an intermediate
  /// layout.
  bool mayReplicate;

  bool allows(const dist::Layout &layout) const;
  /// Returns the cost of moves: their seconds, plus a small weight times the
  /// mean number of elements that a rank receives.
  double cost(const MoveCost &moved) const;
  MoveCost measure(llvm::ArrayRef<Move> moves) const;
};

/// Among plans of up to three moves through `layouts` in which a rank receives
/// at most `mostReceived` elements on average, returns the cheapest. Returns
/// nullopt if no such plan costs less than `limit`.
std::optional<llvm::SmallVector<Move>>
cheapestOfAll(const ReshardProblem &problem,
              llvm::ArrayRef<dist::Layout> layouts, double limit,
              double mostReceived);

} // namespace cleave::partition

#endif
