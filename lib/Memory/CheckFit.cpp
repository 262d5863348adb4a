// rt-check-fit: reports a program that needs more memory than a rank has.

#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/Memory/Footprint.h"
#include "cleave/Memory/Passes.h"

namespace cleave {
#define GEN_PASS_DEF_CHECKFITPASS
#include "cleave/Memory/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;

namespace {
struct CheckFitPass : cleave::impl::CheckFitPassBase<CheckFitPass> {
  using Base::Base;

  void runOnOperation() override {
    // How many microbatches are in flight on a pipeline rank, and so how much
    // memory they need, is known only after the schedule is applied to the
    // stages. For pipelines, the emitted program is checked instead.
    if (getOperation()->hasAttr(rt::kStagesAttr))
      return;
    FailureOr<Footprint> footprint = footprintOf(getOperation());
    if (failed(footprint))
      return signalPassFailure();
    if (limit <= 0 || footprint->peak <= limit)
      return;
    InFlightDiagnostic error =
        getOperation().emitError("a rank needs ")
        << readableBytes(footprint->peak) << ", but there are "
        << readableBytes(limit) << " (" << largestGroups(*footprint)
        << "): " << whatWouldFit(*footprint, limit, batch)
        << "; largest at the peak (@" << footprint->action << ", command "
        << footprint->command << "):";
    std::vector<EqualTensors> largest = largestAtPeak(*footprint);
    for (const EqualTensors &tensors : ArrayRef(largest).take_front(8)) {
      error << " " << tensors.name << " (" << tensors.kind << ", ";
      if (tensors.count > 1)
        error << tensors.count << " x ";
      error << readableBytes(tensors.bytes) << ")";
    }
    signalPassFailure();
  }
};
} // namespace
