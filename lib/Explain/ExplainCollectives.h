// Describes the collectives of a training step for `cleave explain`.

#ifndef CLEAVE_LIB_EXPLAIN_EXPLAINCOLLECTIVES_H
#define CLEAVE_LIB_EXPLAIN_EXPLAINCOLLECTIVES_H

#include "ExplainOverlap.h"

namespace cleave {

/// Returns a map from the name of each action (a function that the pipeline
/// schedule calls, such as the forward pass of a stage), to the bytes of
/// padding of each collective in the action, in program order.
std::map<std::string, std::vector<int64_t>> paddingsOf(mlir::ModuleOp module);

/// What all ranks send in each exchange.
using Exchanges = std::map<const program::Collective *, std::vector<Traffic>>;

/// Returns the collectives that a rank runs in `step`; equal collectives are
/// summed in one entry. `exchanges` keeps the traffic of exchanges from one
/// call to the next, because it is computed for all ranks at once.
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
