// The run of a check: the same values through the sharded and the unsharded
// program, in f64 and in the real precision, and everything compared.

#ifndef CLEAVE_CHECK_CHECK_H
#define CLEAVE_CHECK_CHECK_H

#include "cleave/Check/Report.h"
#include "cleave/Check/Values.h"

namespace cleave::check {

/// The programs that are compared. Those in the real precision may be missing:
/// then there is no rounding part.
struct Programs {
  Engine *sharded = nullptr, *reference = nullptr;         // f64
  Engine *shardedReal = nullptr, *referenceReal = nullptr; // as compiled
};

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

/// `module` is the unpartitioned program, whose @loss_grad, @update and
/// @forward (where it is there) are run.
mlir::LogicalResult runCheck(mlir::ModuleOp module, const Programs &programs,
                             Values &values, const CheckOptions &options,
                             CheckReport &report);

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
                                             const Programs &programs,
                                             Values &values,
                                             const CheckOptions &options);

} // namespace cleave::check

#endif
