// The values that a check gives to all programs alike: a function of the seed
// and of each tensor's role and name, so that they do not depend on order, mesh
// or precision. The real precision represents all of them exactly.

#ifndef CLEAVE_CHECK_VALUES_H
#define CLEAVE_CHECK_VALUES_H

#include "cleave/Check/Engine.h"

#include <map>
#include <optional>
#include <set>

namespace cleave::check {

/// Returns the weights of a tensor in the model's file, in the type of its
/// argument; nothing if the file has none. Reports failures.
using WeightReader =
    std::function<mlir::FailureOr<std::optional<Tensor>>(const Port &)>;

struct ValueOptions {
  uint64_t seed = 0;
  double lr = 1e-2;
  /// Whether noise is added to weights, so that biases are not 0 and gains not
  /// 1.
  bool perturb = true;
  /// Whether integers of unknown meaning are random, too: small and not 0, or
  /// either bit. If not, they are 1, which suits masks and counts of a model.
  bool drawIntegers = false;
  WeightReader weights;
  /// Given inputs by their names in the graph, for one microbatch or for all
  /// microbatches of a step. They replace random inputs.
  std::map<std::string, Tensor> inputs;
  /// For errors: the file of these inputs, and the types of its arrays by name,
  /// such as "f32[2, 4]".
  std::string inputsFile;
  std::map<std::string, std::string> inputsHeld;
  /// Inputs of the model that nothing reads: arrays for them change nothing.
  std::set<std::string> unread;
};

class Values {
public:
  /// `module` is the unpartitioned program.
  Values(mlir::ModuleOp module, ValueOptions options);

  /// Sets parameters, buffers, constants and optimizer state of `engine`.
  /// `stirred`: parameters are perturbed in their last digits of f64.
  mlir::LogicalResult setInitial(Engine &engine, bool stirred = false);
  /// Sets inputs and scalars of a microbatch of a step (counted from 1). The
  /// optimizer is given a later step, so that its bias corrections are not
  /// those of step 1.
  mlir::LogicalResult setMicrobatch(Engine &engine, int64_t step,
                                    int64_t microbatch);
  /// Reports an error if the given inputs do not fit.
  mlir::LogicalResult verifyInputs(int64_t microbatches);

private:
  mlir::FailureOr<Tensor> initial(const Port &port);
  mlir::FailureOr<Tensor> wholeStep(const Port &port, llvm::StringRef of,
                                    int64_t step);
  mlir::FailureOr<Tensor> input(const Port &port, int64_t step,
                                int64_t microbatch);

  mlir::ModuleOp module;
  ValueOptions options;
  /// By Port::key(); each tensor is drawn once.
  std::map<std::string, Tensor> drawn;
};

/// How the elements of an integer argument are used as indices: they are below
/// `bound`, or equal to `ignored`. A bound of 0: they index nothing.
struct IndexUse {
  int64_t bound = 0;
  std::optional<int64_t> ignored;
  bool isSegment = false; // of attention
  /// Bits that remain of an element after a cast to a narrower type.
  unsigned bits = 64;
};
/// Follows operations that only move or cast the elements; with `computed`, all
/// operations that return integers.
IndexUse indexUseOf(mlir::Value value, bool computed);

} // namespace cleave::check

#endif
