// The values that a check feeds to all programs alike: a function of the seed
// and of each tensor's role and name, so that they do not depend on order,
// mesh or precision. All are numbers of the real precision.

#ifndef CLEAVE_CHECK_VALUES_H
#define CLEAVE_CHECK_VALUES_H

#include "cleave/Check/Engine.h"

#include <map>
#include <optional>
#include <set>

namespace cleave::check {

/// The weights of a tensor that the model's file holds, in the type of its
/// argument; nothing where it has none. Failures are reported.
using WeightReader =
    std::function<mlir::FailureOr<std::optional<Tensor>>(const Port &)>;

struct ValueOptions {
  uint64_t seed = 0;
  double lr = 1e-2;
  /// Noise on weights, so that biases are not 0 and gains not 1.
  bool perturb = true;
  /// Integers of which nothing is known are random, too: small and not 0, bits
  /// both. Where false they are 1, as masks and counts of a model should be.
  bool drawIntegers = false;
  WeightReader weights;
  /// Inputs by the names in the graph, of one microbatch or of all microbatches
  /// of a step; they replace the random ones.
  std::map<std::string, Tensor> inputs;
  /// For errors: the file that they come from, and what it holds by name, such
  /// as "f32[2, 4]".
  std::string inputsFile;
  std::map<std::string, std::string> inputsHeld;
  /// Inputs of the model that nothing reads: arrays for them change nothing.
  std::set<std::string> unread;
};

class Values {
public:
  /// `module` is the unpartitioned program.
  Values(mlir::ModuleOp module, ValueOptions options);

  /// Parameters, buffers, constants and optimizer state, given to `engine`.
  /// `stirred`: parameters differ in their last digits of f64.
  mlir::LogicalResult setInitial(Engine &engine, bool stirred = false);
  /// Inputs and scalars of a microbatch of a step (counted from 1). The step
  /// that the optimizer sees is later: its bias corrections are not those of
  /// step 1.
  mlir::LogicalResult setMicrobatch(Engine &engine, int64_t step,
                                    int64_t microbatch);
  /// Whether the given inputs fit; says why not.
  mlir::LogicalResult verifyInputs(int64_t microbatches);

private:
  mlir::FailureOr<Tensor> initial(const Port &port);
  mlir::FailureOr<Tensor> wholeStep(const Port &port, llvm::StringRef of,
                                    int64_t step);
  mlir::FailureOr<Tensor> input(const Port &port, int64_t step,
                                int64_t microbatch);

  mlir::ModuleOp module;
  ValueOptions options;
  /// By key; drawn once.
  std::map<std::string, Tensor> drawn;
};

/// What the elements of an integer argument index: below `bound`, or equal to
/// `ignored`. A bound of 0: they index nothing.
struct IndexUse {
  int64_t bound = 0;
  std::optional<int64_t> ignored;
  bool isSegment = false; // of attention
  /// Of what a cast to a narrower type makes of them.
  unsigned bits = 64;
};
/// Of what only moves or casts the elements, or with `computed` of whatever
/// gives integers again.
IndexUse indexUseOf(mlir::Value value, bool computed);

} // namespace cleave::check

#endif
