// The phases that turn a model into the per-rank program, controlled by a
// configuration. Errors, and remarks of passes, are reported on the module's
// context.

#ifndef CLEAVE_COMPILER_PHASES_H
#define CLEAVE_COMPILER_PHASES_H

#include "cleave/Config/Cluster.h"
#include "cleave/Config/Load.h"

#include "mlir/IR/BuiltinOps.h"

namespace mlir {
class OpPassManager;
}

namespace cleave::compiler {

/// The purpose of a program.
enum class Purpose {
  Train,   ///< everything but @forward, as training does not use outputs
  Explain, ///< as Train, for a program that need not fit on this machine
  Infer,   ///< @forward alone
  Compile, ///< all functions
};

/// Returns whether a program for this purpose omits @forward.
inline bool isForSteps(Purpose purpose) {
  return purpose == Purpose::Train || purpose == Purpose::Explain;
}

//===----------------------------------------------------------------------===//
// Training
//===----------------------------------------------------------------------===//

/// Derives @loss from @forward, and @loss_train if there is dropout. With
/// `updatesApart` (@update runs after each microbatch), the loss is that of one
/// microbatch instead of a whole step.
mlir::LogicalResult addLoss(mlir::ModuleOp module, const Config &config,
                            bool updatesApart = false);

/// Adds the pass nn-count-choices. If the model has experts, this pass adds
/// operations that count, in each training step, how often each expert is
/// chosen.
void addCountPass(mlir::OpPassManager &passes, const Config &config);

/// Adds the passes that derive @loss_grad, @update and @init_state from @loss,
/// for a model or a pipeline stage. With `tapGradients`, the gradients become
/// results of @update, so that a check can compare them. With `updatesApart`,
/// @update runs after each microbatch.
void addTrainPasses(mlir::OpPassManager &passes, const Config &config,
                    bool tapGradients, bool updatesApart = false);

/// Derives @loss_grad, @update and @init_state for a whole model with @loss.
mlir::LogicalResult addGradients(mlir::ModuleOp module, const Config &config,
                                 bool tapGradients);

//===----------------------------------------------------------------------===//
// The machine
//===----------------------------------------------------------------------===//

/// Returns the cluster description that passes use: target.cluster or, if it is
/// not set and the device is CUDA, the built-in description for the precision.
std::string clusterNameOf(const Config &config);
/// Returns the cluster description that `clusterNameOf` names, or the default
/// one if that name is empty.
mlir::FailureOr<Cluster> clusterOf(const Config &config,
                                   mlir::MLIRContext *context);
/// Returns the number of ranks per node; 0 means that all ranks are on one
/// node.
mlir::FailureOr<int64_t> ranksPerNode(const Config &config,
                                      mlir::MLIRContext *context);

//===----------------------------------------------------------------------===//
// Partitioning
//===----------------------------------------------------------------------===//

/// Reorders sequence positions in zig-zag order if the configuration requests
/// this for ring attention. With a pipeline, it runs before the model is cut
/// into stages, otherwise after differentiation: in `phase`.
mlir::LogicalResult orderPositions(mlir::ModuleOp module, const Config &config,
                                   const Mesh &mesh, llvm::StringRef phase);

/// Describes how a pipeline stage will be cut into actions.
struct StageOptions {
  int index = 0; ///< of the stage
  /// True if the gradients of inputs (I) and of weights (W) are computed by
  /// separate actions, false if by one action (B).
  bool weightsApart = false;
  /// The axes over which a separate action (UNSHARD) gathers parameters, once
  /// for the forward and backward passes of several microbatches.
  std::vector<std::string> gatheredAxes;
  /// The classes (such as "inter") of the links over which this stage exchanges
  /// messages with the previous and with the next stage. "" if there is no
  /// previous or next stage, or if it is on the same rank.
  std::string previousLink, nextLink;
};

/// Partitions the module into tiles and collectives. With `allRemarks`, remarks
/// also state the origin of every sharding. `stage` is given if the module is a
/// stage of a pipeline.
mlir::LogicalResult shard(mlir::ModuleOp module, const Config &config,
                          const Mesh &mesh, bool allRemarks = false,
                          const StageOptions *stage = nullptr);

} // namespace cleave::compiler

#endif // CLEAVE_COMPILER_PHASES_H
