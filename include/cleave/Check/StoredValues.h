// Reads the weights and inputs that a check uses from files, and writes
// gradients to a file.

#ifndef CLEAVE_CHECK_STOREDVALUES_H
#define CLEAVE_CHECK_STOREDVALUES_H

#include "cleave/Check/Check.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>

namespace cleave::check {

/// Returns the stored weights of `model` and the arrays of `inputs` (an .npz
/// file, or empty), in f64 and int64. Weights with NaN are an error, because
/// NaN propagates and a comparison treats NaN as equal to NaN. If `weights` (a
/// checkpoint or .safetensors file) is not empty, weights are read from it
/// instead; it must fit `module`.
mlir::FailureOr<ValueOptions> storedValues(const std::string &model,
                                           const std::string &inputs,
                                           const std::string &weights,
                                           mlir::ModuleOp module);

/// Writes the results of one step to the .npz file `path`: the mean loss, its
/// weight (the number of losses that the mean is over), the outputs, and the
/// gradients of the mean loss as "grad/NAME". Tensors have the names and shapes
/// of the model's file.
mlir::LogicalResult writeGradients(mlir::ModuleOp module,
                                   const Outcome &outcome,
                                   const std::string &path);

} // namespace cleave::check

#endif // CLEAVE_CHECK_STOREDVALUES_H
