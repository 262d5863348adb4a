//===- ReshardSearch.h - a search over layouts ------------------*- C++ -*-===//

#ifndef CLEAVE_LIB_PARTITION_RESHARD_RESHARDSEARCH_H
#define CLEAVE_LIB_PARTITION_RESHARD_RESHARDSEARCH_H

#include "ReshardExhaustive.h"

#include <string>

namespace cleave::partition {

/// A later plan replaces an earlier one only if it is cheaper by at least this
/// share.
constexpr double kGain = 0.002;

/// A unique key of a layout.
std::string keyOf(const dist::Layout &layout);

struct SearchLimits {
  /// Axes over which the source, the target and all layouts between them are
  /// partial.
  dist::AxisSet kept = 0;
  /// Whether the value is reduced over axes that are not in `kept`, although
  /// both source and target are partial over them. The plan then creates the
  /// partial sums of the target again at the end.
  bool summing = false;
  unsigned maxVisits = 0;
  /// The largest number of elements that a rank may receive on average.
  double mostReceived = INFINITY;
};

struct FoundPlan {
  llvm::SmallVector<Move> moves;
  /// The cost of the plan `moves`; infinite if there is no plan within the
  /// limits.
  double cost = INFINITY;
  /// The cost of the fastest plan, which another plan must beat. `moves` may be
  /// a plan that is hardly slower and receives fewer elements.
  double fastestCost = INFINITY;
  /// Lower bounds of the cost of any plan, and of the elements that a rank
  /// receives on average.
  double leastCost = 0, leastReceived = 0;
};

FoundPlan searchPlan(const ReshardProblem &problem,
                     const ReshardOptions &options, const SearchLimits &limits);

} // namespace cleave::partition

#endif
