// Phases whose failures are thrown.

#include "Phases.h"

#include "mlir/Pass/PassManager.h"

using namespace mlir;

namespace cleave::driver {

static void orFail(LogicalResult result, Diagnostics &diagnostics) {
  if (failed(result))
    diagnostics.fail(BadUsage);
}

void runPasses(PassManager &passes, ModuleOp module, Diagnostics &diagnostics) {
  orFail(passes.run(module), diagnostics);
}

void runLossPhase(ModuleOp module, const Config &config, bool updatesApart) {
  Diagnostics diagnostics(*module.getContext());
  orFail(compiler::addLoss(module, config, updatesApart), diagnostics);
}

void runGradientPhase(ModuleOp module, const Config &config,
                      bool tapGradients) {
  Diagnostics diagnostics(*module.getContext());
  orFail(compiler::addGradients(module, config, tapGradients), diagnostics);
}

void runTrainPhase(ModuleOp module, const Config &config, bool tapGradients) {
  runLossPhase(module, config);
  runGradientPhase(module, config, tapGradients);
}

void runOrderPhase(ModuleOp module, const Config &config, const Mesh &mesh) {
  Diagnostics diagnostics(*module.getContext());
  orFail(compiler::orderPositions(module, config, mesh), diagnostics);
}

void cutIntoStages(ModuleOp module, const Config &config, int64_t stages,
                   bool tapGradients, bool updatesApart) {
  Diagnostics diagnostics(*module.getContext());
  orFail(compiler::cutIntoStages(module, config, stages, tapGradients,
                                 updatesApart),
         diagnostics);
}

void runShardPhase(ModuleOp module, const Config &config, const Mesh &mesh,
                   std::vector<std::string> *remarks, bool allRemarks,
                   const StageOptions *stage) {
  Diagnostics diagnostics(*module.getContext(), remarks);
  orFail(compiler::shard(module, config, mesh, allRemarks, stage), diagnostics);
}

Cluster clusterOf(const Config &config) {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  Diagnostics diagnostics(context);
  FailureOr<Cluster> cluster = compiler::clusterOf(config, &context);
  orFail(cluster, diagnostics);
  return *cluster;
}

int64_t ranksPerNode(const Config &config) {
  return config.mesh.ranksPerNode ? config.mesh.ranksPerNode
                                  : clusterOf(config).ranksPerNode;
}

} // namespace cleave::driver
