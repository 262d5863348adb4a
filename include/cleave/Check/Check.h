// Runs a check (`cleave check`): the sharded and the unsharded program get the
// same values, and all their results are compared. Both programs run in f64,
// and then in the precision in which they are trained (f32, or f32 and bf16).

#ifndef CLEAVE_CHECK_CHECK_H
#define CLEAVE_CHECK_CHECK_H

#include "cleave/Check/Report.h"
#include "cleave/Check/Values.h"

namespace cleave::check {

struct CheckOptions {
  int64_t steps = 5;
  int64_t microbatches = 1;
  /// Machine epsilon of the precision in which the program is trained.
  double epsilon = 1.1920928955078125e-07;
  Tolerances tolerances;
};

/// All results of one step of a program. `loss` is a sum of losses and `weight`
/// their number, so the mean loss is loss / weight.
struct Outcome {
  double loss = 0, weight = 0;
  NamedTensors tensors;
};

// In the following functions, `module` is the unpartitioned program. Its
// functions @loss_grad, @update and @forward (those that exist) are run.

/// Runs both programs in f64, and compares all results after the first and
/// after the last step. Sets `first` to the results of the reference program
/// after step 1.
mlir::LogicalResult runExact(mlir::ModuleOp module, Engine &sharded,
                             Engine &reference, Values &values,
                             const CheckOptions &options, CheckReport &report,
                             NamedTensors &first);

/// Runs one step of both programs in the precision in which they are trained,
/// and compares the results of both with `reference`: the f64 results after
/// step 1, which `runExact` returns in its argument `first`.
mlir::LogicalResult runRounding(mlir::ModuleOp module, Engine &sharded,
                                Engine &unsharded, Values &values,
                                const CheckOptions &options,
                                CheckReport &report,
                                const NamedTensors &reference);

/// Runs @forward, then one training step; returns the results of both.
mlir::FailureOr<Outcome> runStep(mlir::ModuleOp module, Engine &engine,
                                 Values &values, int64_t step,
                                 int64_t microbatches);

/// Adds every float value in the functions that a check runs to the results of
/// its function, with role `tap`, so that a comparison can name the first value
/// that differs. Results of operations without operands, such as constants, are
/// not added.
void tapAllValues(mlir::ModuleOp module);
/// Runs one step of both programs and compares the values that `tapAllValues`
/// added as results, in program order. Returns a description of the first value
/// that differs, or an empty string if all values agree.
mlir::FailureOr<std::string> firstDifference(mlir::ModuleOp module,
                                             Engine &sharded, Engine &reference,
                                             Values &values,
                                             const CheckOptions &options);

} // namespace cleave::check

#endif
