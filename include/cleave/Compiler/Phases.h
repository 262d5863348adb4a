// The phases from a model to the program of one rank, as a configuration asks
// for them. What is wrong is an error of the module's context; remarks of
// passes are remarks there.

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
  Train,   ///< everything but @forward, whose outputs training does not keep
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

/// @loss joins @forward, and @loss_train where there is dropout.
/// `updatesApart`: each microbatch has a loss of its own.
mlir::LogicalResult addLoss(mlir::ModuleOp module, const Config &config,
                            bool updatesApart = false);

/// The loads of experts, where there are any, join what is computed in
/// training.
void addCountPass(mlir::OpPassManager &passes, const Config &config);

/// From @loss to @loss_grad, @update and @init_state, of a model or of a stage.
/// `updatesApart`: @update after each microbatch.
void addTrainPasses(mlir::OpPassManager &passes, const Config &config,
                    bool tapGradients, bool updatesApart = false);

/// The same, for a whole model with @loss.
mlir::LogicalResult addGradients(mlir::ModuleOp module, const Config &config,
                                 bool tapGradients);

//===----------------------------------------------------------------------===//
// The machine
//===----------------------------------------------------------------------===//

/// The name of the cluster for passes: without target.cluster, for CUDA the
/// built-in one of the precision.
std::string clusterNameOf(const Config &config);
/// What it says about the machine; without it the defaults.
mlir::FailureOr<Cluster> clusterOf(const Config &config,
                                   mlir::MLIRContext *context);
/// Ranks of a node, 0: all.
mlir::FailureOr<int64_t> ranksPerNode(const Config &config,
                                      mlir::MLIRContext *context);

//===----------------------------------------------------------------------===//
// Partitioning
//===----------------------------------------------------------------------===//

/// Puts positions into zig-zag order where a ring asks for that. Before the
/// model is cut into stages, or after it is differentiated.
mlir::LogicalResult orderPositions(mlir::ModuleOp module, const Config &config,
                                   const Mesh &mesh);

/// How the stage of a pipeline will be cut into actions.
struct StageOptions {
  bool weightsApart = false; ///< I and W are actions of their own
  /// Axes over which an action of its own gathers parameters, once for both
  /// passes of several microbatches.
  std::vector<std::string> gatheredAxes;
  /// Classes of the links to the stages before and after; "": on the same rank.
  std::string previousLink, nextLink;
};

/// From whole tensors to tiles and collectives. `allRemarks`: remarks also say
/// where every sharding comes from. `stage`: the module is a stage of a
/// pipeline.
mlir::LogicalResult shard(mlir::ModuleOp module, const Config &config,
                          const Mesh &mesh, bool allRemarks = false,
                          const StageOptions *stage = nullptr);

} // namespace cleave::compiler

#endif // CLEAVE_COMPILER_PHASES_H
