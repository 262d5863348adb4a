// The values that a check gives to all programs. They are a function of the
// seed and of a tensor's role and name only, so they do not depend on order,
// mesh or precision. The precision in which the program is trained (f32, or f32
// and bf16) represents all these values exactly.

#ifndef CLEAVE_CHECK_VALUES_H
#define CLEAVE_CHECK_VALUES_H

#include "cleave/Check/Engine.h"

#include <map>
#include <optional>
#include <set>

namespace cleave::check {

/// Returns the weights of a tensor in the model's file, in the type of its
/// argument, or nullopt if the file has none. Reports failures.
using WeightReader =
    std::function<mlir::FailureOr<std::optional<Tensor>>(const Port &)>;

struct ValueOptions {
  uint64_t seed = 0;
  double lr = 1e-2;
  /// If true, noise is added to weights, so that biases are not 0 and gains are
  /// not 1.
  bool perturb = true;
  /// If true, integers of unknown meaning are random, too: small nonzero
  /// numbers, or 0 or 1 for i1. Otherwise, they are 1, which suits masks and
  /// counts.
  bool drawIntegers = false;
  WeightReader weights;
  /// User-provided inputs by their names in the graph, for one microbatch or
  /// for all microbatches of a step. They replace random inputs.
  std::map<std::string, Tensor> inputs;
  /// For error messages: the file of the provided inputs, and the types of its
  /// arrays by name, such as "f32[2, 4]".
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
  /// counted from 1. The optimizer gets a larger step number, so that its bias
  /// corrections are not those of step 1.
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

/// How the elements of an integer argument are used as indices: they are below
/// `bound`, or equal to `ignored`. A bound of 0 means that the elements are not
/// used as indices.
struct IndexUse {
  int64_t bound = 0;
  std::optional<int64_t> ignored;
  bool isSegment = false; // of attention
  /// The number of bits of an element that remain after casts to narrower
  /// types.
  unsigned bits = 64;
};
/// Finds how `value` is used, through operations that only move or cast its
/// elements; with `computed`, through all operations that return integers.
IndexUse indexUseOf(mlir::Value value, bool computed);

} // namespace cleave::check

#endif
