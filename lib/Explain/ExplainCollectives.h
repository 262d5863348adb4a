// The collectives of a step, for Explain.cpp.

#ifndef CLEAVE_LIB_EXPLAIN_EXPLAINCOLLECTIVES_H
#define CLEAVE_LIB_EXPLAIN_EXPLAINCOLLECTIVES_H

#include "ExplainOverlap.h"

namespace cleave {

/// Bytes of padding of each collective of each action, in order.
std::map<std::string, std::vector<int64_t>> paddingsOf(mlir::ModuleOp module);

/// What all ranks send in each exchange.
using Exchanges = std::map<const program::Collective *, std::vector<Traffic>>;

/// Those that a rank joins, added up where they are alike. `exchanges` keeps
/// what was counted for one rank for the next.
std::vector<CollectiveCost>
collectivesOf(const program::Program &program,
              const std::map<std::string, std::vector<int64_t>> &paddings,
              const Step &step, const Cluster &cluster, int64_t rank,
              Exchanges &exchanges);

/// Leaves of each its part of what nothing hides.
void hideOverlapped(std::vector<CollectiveCost> &collectives,
                    const Explanation::Overlap &overlap);

} // namespace cleave

#endif
