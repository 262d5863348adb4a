// The values that a check gives to all programs. A random tensor is a function
// of the seed, of the tensor's role and name, and for inputs of the step and
// microbatch. So it does not depend on the mesh, on the precision, or on the
// order of tensors. Random values are rounded to f32, so that programs in f64
// and in f32 get the same numbers.

#ifndef CLEAVE_CHECK_VALUES_H
#define CLEAVE_CHECK_VALUES_H

#include "cleave/Check/Engine.h"

#include <map>
#include <optional>
#include <set>

namespace cleave::check {

/// Returns the values that the model's file (or a file of weights) stores for
/// an argument of the program, in the shape of the argument, or nullopt if it
/// stores none. Reports errors.
using WeightReader =
    std::function<mlir::FailureOr<std::optional<Tensor>>(const Port &)>;

struct ValueOptions {
  uint64_t seed = 0;
  double lr = 1e-2;
  /// If true, random numbers are added to the weights of the file, so that
  /// biases are not 0 and gains are not 1.
  bool perturb = true;
  /// Applies to integer inputs that are not used as indices or segment ids. If
  /// true, their elements are random: small nonzero numbers, or 0 or 1 for i1.
  /// Otherwise, their elements are 1, which suits masks and counts.
  bool drawIntegers = false;
  WeightReader weights;
  /// User-provided inputs by their names in the graph, for one microbatch or
  /// for all microbatches of a step. They replace random inputs.
  std::map<std::string, Tensor> inputs;
  /// The file of the provided inputs, and the type of each of its arrays by
  /// name, such as "f32[2, 4]". Used in error messages.
  std::string inputsFile;
  std::map<std::string, std::string> inputsHeld;
  /// Inputs of the model that no operation reads, so that arrays for them have
  /// no effect.
  std::set<std::string> unread;
};

class Values {
public:
  /// `module` is the unpartitioned program.
  Values(mlir::ModuleOp module, ValueOptions options);

  /// Sets parameters, buffers, constants and optimizer state of `engine`. If
  /// `perturbed`, parameters are perturbed in their last digits of f64.
  mlir::LogicalResult setInitial(Engine &engine, bool perturbed = false);
  /// Sets the inputs and scalars of one microbatch of step `step`; steps are
  /// counted from 1. The optimizer gets a larger step number than `step`, so
  /// that its bias corrections are not those of step 1.
  mlir::LogicalResult setMicrobatch(Engine &engine, int64_t step,
                                    int64_t microbatch);
  /// Reports an error if the user-provided inputs do not fit the program.
  mlir::LogicalResult verifyInputs(int64_t microbatches);

private:
  mlir::FailureOr<Tensor> initial(const Port &port);
  mlir::FailureOr<Tensor> wholeStep(const Port &port, llvm::StringRef of,
                                    int64_t step);
  mlir::FailureOr<Tensor> input(const Port &port, int64_t step,
                                int64_t microbatch);

  mlir::ModuleOp module;
  ValueOptions options;
  /// The random tensors by Port::key(); each tensor is drawn once.
  std::map<std::string, Tensor> drawn;
};

/// How operations use the elements of an integer argument. If they are used as
/// indices, each must be below `bound`, or equal to `ignored`. A bound of 0
/// means that they are not used as indices.
struct IndexUse {
  int64_t bound = 0;
  std::optional<int64_t> ignored;
  bool isSegment = false; // the elements are segment ids of attention
  /// The number of bits of an element that remain after casts to narrower
  /// types.
  unsigned bits = 64;
};
/// Finds how `value` is used as an index, by itself or after operations that
/// only move or cast its elements. With `computed`, also considers integers
/// that any other operations compute from `value`.
IndexUse indexUseOf(mlir::Value value, bool computed);

} // namespace cleave::check

#endif
