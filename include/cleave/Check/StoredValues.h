// Values of a check that are read from files, and gradients written to a file.

#ifndef CLEAVE_CHECK_STOREDVALUES_H
#define CLEAVE_CHECK_STOREDVALUES_H

#include "cleave/Check/Check.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>

namespace cleave::check {

/// The stored weights of `model` and the arrays of `inputs` (an .npz, or
/// empty), in f64 and int64. Weights that hold NaN are refused when they are
/// read: a comparison takes NaN as equal to NaN, and NaN propagates. `weights`:
/// a checkpoint or .safetensors file to read instead, which must fit `module`;
/// or empty.
mlir::FailureOr<ValueOptions> storedValues(const std::string &model,
                                           const std::string &inputs,
                                           const std::string &weights,
                                           mlir::ModuleOp module);

/// Writes loss, weight, outputs, and the gradients of the mean loss as
/// "grad/NAME", under the names and in the shapes of the model's file.
mlir::LogicalResult writeGradients(mlir::ModuleOp module,
                                   const Outcome &outcome,
                                   const std::string &path);

} // namespace cleave::check

#endif // CLEAVE_CHECK_STOREDVALUES_H
