// The run of a check: the same values through the sharded and the unsharded
// program, in f64 and in the real precision, and everything compared.

#ifndef CLEAVE_CHECK_CHECK_H
#define CLEAVE_CHECK_CHECK_H

#include "cleave/Check/Report.h"
#include "cleave/Check/Values.h"

namespace cleave::check {

struct CheckOptions {
  int64_t steps = 5;
  int64_t microbatches = 1;
  /// Of the real precision.
  double epsilon = 1.1920928955078125e-07;
  Tolerances tolerances;
};

/// Everything that a program computed.
struct Outcome {
  double loss = 0, weight = 0;
  NamedTensors tensors;
};

// `module` is the unpartitioned program, whose @loss_grad, @update and @forward
// (where it is there) are run.

/// The programs in f64, step by step: after the first and after the last,
/// everything is compared. `first` is what the reference computed in step 1.
mlir::LogicalResult runExact(mlir::ModuleOp module, Engine &sharded,
                             Engine &reference, Values &values,
                             const CheckOptions &options, CheckReport &report,
                             NamedTensors &first);

/// One step of the programs in their real precision, both against `reference`,
/// which `runExact` gave.
mlir::LogicalResult runRounding(mlir::ModuleOp module, Engine &sharded,
                                Engine &unsharded, Values &values,
                                const CheckOptions &options,
                                CheckReport &report,
                                const NamedTensors &reference);

/// One step, and the outputs of @forward before it.
mlir::FailureOr<Outcome> runStep(mlir::ModuleOp module, Engine &engine,
                                 Values &values, int64_t step,
                                 int64_t microbatches);

/// Adds every value of type float in the functions that a check runs to their
/// results, as role `tap`, so that a comparison can say which one is the first
/// that differs.
void tapAllValues(mlir::ModuleOp module);
/// The taps of one step in program order; the first that differs, for people,
/// or an empty string.
mlir::FailureOr<std::string> firstDifference(mlir::ModuleOp module,
                                             Engine &sharded, Engine &reference,
                                             Values &values,
                                             const CheckOptions &options);

} // namespace cleave::check

#endif
