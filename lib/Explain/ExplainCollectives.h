// Describes the collectives of a training step, for Explain.cpp.

#ifndef CLEAVE_LIB_EXPLAIN_EXPLAINCOLLECTIVES_H
#define CLEAVE_LIB_EXPLAIN_EXPLAINCOLLECTIVES_H

#include "ExplainOverlap.h"

namespace cleave {

/// Returns, for the name of each action (a function that the pipeline schedule
/// calls, such as the forward pass of a stage), the bytes of padding of each
/// collective in the action, in program order.
std::map<std::string, std::vector<int64_t>> paddingsOf(mlir::ModuleOp module);

/// What all ranks send in each exchange.
using Exchanges = std::map<const program::Collective *, std::vector<Traffic>>;

/// Returns the collectives of a rank; equal collectives are summed in one
/// entry. `exchanges` caches the traffic of exchanges between calls for
/// different ranks.
std::vector<CollectiveCost>
collectivesOf(const program::Program &program,
              const std::map<std::string, std::vector<int64_t>> &paddings,
              const Step &step, const Cluster &cluster, int64_t rank,
              Exchanges &exchanges);

/// Reduces the time of each collective to its exposed time, which is not
/// overlapped with computation.
void hideOverlapped(std::vector<CollectiveCost> &collectives,
                    const Explanation::Overlap &overlap);

} // namespace cleave

#endif
