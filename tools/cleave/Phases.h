// The phases of lib/Compiler for commands: what they report is printed, and
// failures are thrown.

#ifndef CLEAVE_TOOLS_PHASES_H
#define CLEAVE_TOOLS_PHASES_H

#include "ImportModel.h"

#include "cleave/Compiler/Phases.h"
#include "cleave/Compiler/Sharded.h"
#include "cleave/Compiler/Stages.h"

namespace mlir {
class PassManager;
} // namespace mlir

namespace cleave::driver {

using compiler::clusterNameOf;
using compiler::isForSteps;
using compiler::isSharded;
using compiler::meshInFile;
using compiler::meshOf;
using compiler::Purpose;
using compiler::removeShardings;
using compiler::StageOptions;

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

// Those of cleave/Compiler/Phases.h; they fail with BadUsage.
void runLossPhase(mlir::ModuleOp module, const Config &config,
                  bool updatesApart = false);
void runGradientPhase(mlir::ModuleOp module, const Config &config,
                      bool tapGradients);
void runTrainPhase(mlir::ModuleOp module, const Config &config,
                   bool tapGradients);
void runOrderPhase(mlir::ModuleOp module, const Config &config,
                   const Mesh &mesh);
void cutIntoStages(mlir::ModuleOp module, const Config &config, int64_t stages,
                   bool tapGradients, bool updatesApart = false);
// Remarks go to stderr, or into `remarks`.
void runShardPhase(mlir::ModuleOp module, const Config &config,
                   const Mesh &mesh,
                   std::vector<std::string> *remarks = nullptr,
                   bool allRemarks = false,
                   const StageOptions *stage = nullptr);

// What target.cluster says about the machine; without it the defaults.
Cluster clusterOf(const Config &config);
// Ranks of a node, 0: all.
int64_t ranksPerNode(const Config &config);

} // namespace cleave::driver

#endif // CLEAVE_TOOLS_PHASES_H
