// Modelled seconds of a step, for Explain.cpp.

#ifndef CLEAVE_LIB_EXPLAIN_EXPLAINOVERLAP_H
#define CLEAVE_LIB_EXPLAIN_EXPLAINOVERLAP_H

#include "cleave/Explain/Explain.h"
#include "cleave/Target/Schedule.h"

namespace cleave {

/// The actions that a rank runs in one step, including those that other actions
/// call, and how often it runs each.
using Step = std::vector<std::pair<const program::Action *, int64_t>>;

/// Returns the modelled times with overlap. `steps` and the result have one
/// entry for each class of ranks, which run identical commands. The result is
/// empty if rt-overlap has not recorded the times of actions.
mlir::FailureOr<std::vector<Explanation::Overlap>>
overlapsOf(mlir::ModuleOp module, const program::Program &program,
           const std::vector<Step> &steps,
           const target::PipelineSchedule *schedule, const Cluster &cluster);

} // namespace cleave

#endif
