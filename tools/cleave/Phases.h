// The phases from a model to the program of one rank, as the configuration asks
// for them. Failures are thrown.

#ifndef CLEAVE_TOOLS_PHASES_H
#define CLEAVE_TOOLS_PHASES_H

#include "ImportModel.h"

#include "cleave/Config/Cluster.h"

namespace mlir {
class OpPassManager;
class PassManager;
} // namespace mlir

namespace cleave::driver {

// What a program is for.
enum class Purpose {
  Train,   // everything but @forward, whose outputs training does not keep
  Explain, // the same, of a program that need not fit here
  Infer,   // @forward alone
  Compile, // all
};

// Whether @forward is left out.
inline bool isForSteps(Purpose purpose) {
  return purpose == Purpose::Train || purpose == Purpose::Explain;
}

// Runs them; fails with BadUsage.
void runPasses(mlir::PassManager &passes, mlir::ModuleOp module,
               Diagnostics &diagnostics);

// An .onnx file imported, or an .mlir file read. It has a @forward. `compiles`:
// the program is to be compiled; what can only be interpreted is refused.
// `trains`: @loss is derived next, so what it asks of other numbers of samples
// is imported, too.
mlir::OwningOpRef<mlir::ModuleOp>
loadModel(const std::string &path, const Config &config,
          mlir::MLIRContext &context, bool readWeights, bool compiles = true,
          bool trains = false);

// @loss joins @forward, and @loss_train where there is dropout. `updatesApart`:
// each microbatch has a loss of its own.
void runLossPhase(mlir::ModuleOp module, const Config &config,
                  bool updatesApart = false);

// Loads of experts, where there are any, join what is computed in training.
void addCountPass(mlir::OpPassManager &passes, const Config &config);

// From @loss to @loss_grad, @update and @init_state, of a model or of a stage.
// `updatesApart`: @update after each microbatch.
void addTrainPasses(mlir::OpPassManager &passes, const Config &config,
                    bool tapGradients, bool updatesApart = false);

// The same, for a whole model with @loss.
void runGradientPhase(mlir::ModuleOp module, const Config &config,
                      bool tapGradients);

// Both: @loss, @loss_grad, @update and @init_state join @forward.
void runTrainPhase(mlir::ModuleOp module, const Config &config,
                   bool tapGradients);

// Puts positions into zig-zag order where a ring asks for that. Before the
// model is cut into stages, or after it is differentiated.
void runOrderPhase(mlir::ModuleOp module, const Config &config,
                   const Mesh &mesh);

// What target.cluster says about the machine; without it the defaults.
Cluster clusterOf(const Config &config);
// Its name for passes: without one, for CUDA the built-in one of the precision.
std::string clusterNameOf(const Config &config);

// Ranks of a node, 0: all.
int64_t ranksPerNode(const Config &config);

// How the stage of a pipeline will be cut into actions.
struct StageOptions {
  bool weightsApart = false; // I and W are actions of their own
  // Axes over which an action of its own gathers parameters, once for both
  // passes of several microbatches.
  std::vector<std::string> gatheredAxes;
  // Classes of the links to the stages before and after; "": on the same rank.
  std::string previousLink, nextLink;
};

// From whole tensors to tiles and collectives. Remarks go to stderr, or into
// `remarks`; `allRemarks`: also where every sharding comes from. `stage`: the
// module is a stage of a pipeline.
void runShardPhase(mlir::ModuleOp module, const Config &config,
                   const Mesh &mesh,
                   std::vector<std::string> *remarks = nullptr,
                   bool allRemarks = false,
                   const StageOptions *stage = nullptr);

} // namespace cleave::driver

#endif // CLEAVE_TOOLS_PHASES_H
