// Modelled seconds of a step, for Explain.cpp.

#ifndef CLEAVE_LIB_DRIVER_EXPLAINOVERLAP_H
#define CLEAVE_LIB_DRIVER_EXPLAINOVERLAP_H

#include "cleave/Driver/Explain.h"
#include "cleave/Target/Schedule.h"

namespace cleave {

/// How often each action runs in one step of a class of ranks, with those that
/// it calls.
using Step = std::vector<std::pair<const program::Action *, int64_t>>;

/// The rank's coordinates on the mesh's axes.
std::vector<int64_t> coordinatesOf(const program::Program &program,
                                   int64_t rank);

/// The class of the links that a collective goes over: "inter" where one of its
/// groups leaves a node.
std::string linkOf(const program::Program &program,
                   const program::Collective &collective);

/// Seconds of a rank that sends, or receives, so many bytes to, or from, a
/// group of so many.
double secondsOf(const LinkClass &link, int64_t bytes, int64_t groupSize);

/// By class of ranks, whose steps are given; empty where rt-overlap has not
/// said what actions take.
mlir::FailureOr<std::vector<Explanation::Overlap>>
overlapsOf(mlir::ModuleOp module, const program::Program &program,
           const std::vector<Step> &steps,
           const target::PipelineSchedule *schedule, const Cluster &cluster);

} // namespace cleave

#endif
