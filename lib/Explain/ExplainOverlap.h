// Modelled seconds of a step, for Explain.cpp.

#ifndef CLEAVE_LIB_EXPLAIN_EXPLAINOVERLAP_H
#define CLEAVE_LIB_EXPLAIN_EXPLAINOVERLAP_H

#include "cleave/Explain/Explain.h"
#include "cleave/Target/Schedule.h"

namespace cleave {

/// How often each action runs in one step of a class of ranks, with those that
/// it calls.
using Step = std::vector<std::pair<const program::Action *, int64_t>>;

/// By class of ranks, whose steps are given; empty where rt-overlap has not
/// said what actions take.
mlir::FailureOr<std::vector<Explanation::Overlap>>
overlapsOf(mlir::ModuleOp module, const program::Program &program,
           const std::vector<Step> &steps,
           const target::PipelineSchedule *schedule, const Cluster &cluster);

} // namespace cleave

#endif
