//===- ReshardSearch.h - a search over layouts ------------------*- C++ -*-===//

#ifndef CLEAVE_LIB_PARTITION_RESHARD_RESHARDSEARCH_H
#define CLEAVE_LIB_PARTITION_RESHARD_RESHARDSEARCH_H

#include "ReshardExhaustive.h"

#include <string>

namespace cleave::partition {

/// A plan must be better by this much to replace one that was found before.
constexpr double kGain = 0.002;

/// The same for equal layouts, another for others.
std::string keyOf(const dist::Layout &layout);

struct SearchLimits {
  /// Axes over which source and target are partial and stay so.
  dist::AxisSet kept = 0;
  /// Partial sums over other axes of both are summed on the way, and made
  /// again.
  bool summing = false;
  unsigned maxVisits = 0;
  /// Elements that a rank receives on average.
  double mostReceived = INFINITY;
};

struct FoundPlan {
  llvm::SmallVector<Move> moves;
  /// Infinite where there is no plan within the limits.
  double cost = INFINITY;
  /// Of the fastest plan. The one above may receive less and take hardly
  /// longer; another must beat this.
  double fastestCost = INFINITY;
  /// What no plan costs less than, and what a rank receives at the least, on
  /// average.
  double leastCost = 0, leastReceived = 0;
};

FoundPlan searchPlan(const ReshardProblem &problem,
                     const ReshardOptions &options, const SearchLimits &limits);

} // namespace cleave::partition

#endif
