// Modelled seconds of a step, for Explain.cpp.

#ifndef CLEAVE_LIB_EXPLAIN_EXPLAINOVERLAP_H
#define CLEAVE_LIB_EXPLAIN_EXPLAINOVERLAP_H

#include "cleave/Explain/Explain.h"
#include "cleave/Target/Schedule.h"

namespace cleave {

/// How often each action, including called ones, runs in one step of a class of
/// ranks.
using Step = std::vector<std::pair<const program::Action *, int64_t>>;

/// Returns the overlap of each class of ranks, given their steps. Empty if
/// rt-overlap has not recorded the times of actions.
mlir::FailureOr<std::vector<Explanation::Overlap>>
overlapsOf(mlir::ModuleOp module, const program::Program &program,
           const std::vector<Step> &steps,
           const target::PipelineSchedule *schedule, const Cluster &cluster);

} // namespace cleave

#endif
