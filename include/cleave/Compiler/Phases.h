// The phases from a model to the per-rank program, as a configuration asks for
// them. Errors, and remarks of passes, are reported on the module's context.

#ifndef CLEAVE_COMPILER_PHASES_H
#define CLEAVE_COMPILER_PHASES_H

#include "cleave/Config/Cluster.h"
#include "cleave/Config/Load.h"

#include "mlir/IR/BuiltinOps.h"

namespace mlir {
class OpPassManager;
}

namespace cleave::compiler {

/// What a program is for.
enum class Purpose {
  Train,   ///< everything but @forward, as training does not use outputs
  Explain, ///< the same, of a program that need not fit here
  Infer,   ///< @forward alone
  Compile, ///< all
};

/// Whether @forward is left out.
inline bool isForSteps(Purpose purpose) {
  return purpose == Purpose::Train || purpose == Purpose::Explain;
}

//===----------------------------------------------------------------------===//
// Training
//===----------------------------------------------------------------------===//

/// Derives @loss from @forward, and @loss_train if there is dropout.
/// `updatesApart`: each microbatch has a loss of its own.
mlir::LogicalResult addLoss(mlir::ModuleOp module, const Config &config,
                            bool updatesApart = false);

/// Adds the pass that counts the loads of experts during training, if there are
/// experts.
void addCountPass(mlir::OpPassManager &passes, const Config &config);

/// Adds the passes that derive @loss_grad, @update and @init_state from @loss,
/// for a model or a stage. `updatesApart`: @update after each microbatch.
void addTrainPasses(mlir::OpPassManager &passes, const Config &config,
                    bool tapGradients, bool updatesApart = false);

/// The same, for a whole model with @loss.
mlir::LogicalResult addGradients(mlir::ModuleOp module, const Config &config,
                                 bool tapGradients);

//===----------------------------------------------------------------------===//
// The machine
//===----------------------------------------------------------------------===//

/// The name of the cluster for passes: target.cluster, else for CUDA the
/// built-in one of the precision.
std::string clusterNameOf(const Config &config);
/// The description of the machine with that name; the defaults if there is no
/// name.
mlir::FailureOr<Cluster> clusterOf(const Config &config,
                                   mlir::MLIRContext *context);
/// Ranks of a node, 0: all.
mlir::FailureOr<int64_t> ranksPerNode(const Config &config,
                                      mlir::MLIRContext *context);

//===----------------------------------------------------------------------===//
// Partitioning
//===----------------------------------------------------------------------===//

/// Reorders positions in zig-zag order if a ring asks for it. Runs before the
/// model is cut into stages, or else after it is differentiated.
mlir::LogicalResult orderPositions(mlir::ModuleOp module, const Config &config,
                                   const Mesh &mesh);

/// How the stage of a pipeline will be cut into actions.
struct StageOptions {
  bool weightsApart = false; ///< I and W are actions of their own
  /// Axes over which a separate action gathers parameters, once for the forward
  /// and backward passes of several microbatches.
  std::vector<std::string> gatheredAxes;
  /// Classes of the links to the stages before and after; "": on the same rank.
  std::string previousLink, nextLink;
};

/// Partitions the module into tiles and collectives. `allRemarks`: remarks also
/// say where every sharding comes from. `stage`: the module is a stage of a
/// pipeline.
mlir::LogicalResult shard(mlir::ModuleOp module, const Config &config,
                          const Mesh &mesh, bool allRemarks = false,
                          const StageOptions *stage = nullptr);

} // namespace cleave::compiler

#endif // CLEAVE_COMPILER_PHASES_H
