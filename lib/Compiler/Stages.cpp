// Cuts the model with its loss into one module for each stage of a pipeline.

#include "cleave/Compiler/Stages.h"
#include "cleave/Compiler/Phases.h"

#include "cleave/Autodiff/Passes.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Stage/Passes.h"
#include "cleave/Strategy/Passes.h"
#include "cleave/Support/Passes.h"

#include "mlir/Pass/PassManager.h"

using namespace mlir;

namespace cleave::compiler {

LogicalResult cutIntoStages(ModuleOp module, const Config &config,
                            int64_t stages, bool tapGradients,
                            bool updatesApart) {
  // The parameter-name patterns of train.no_decay and [[shard]] are checked on
  // the whole model, because a single stage does not have all parameters. A
  // model without @loss is only used for inference, so it has no weight decay.
  auto loss = module.lookupSymbol<func::FuncOp>(nn::kLossFunc);
  auto matches = llvm::map_to_vector(
      config.shard, [](const ShardConfig &entry) { return entry.match; });
  if ((loss &&
       failed(checkNoDecay(loss, llvm::to_vector(config.train.noDecay)))) ||
      failed(checkShardMatches(module, matches)))
    return failure();
  MarkStagesPassOptions mark;
  mark.stages = stages;
  mark.patterns = llvm::to_vector(config.parallel.pipeline.stages);
  mark.cluster = clusterNameOf(config);
  return runPasses(module, "train-stages", [&](OpPassManager &passes) {
    passes.addPass(createMarkStagesPass(mark));
    // Counters of experts are inserted after the stages are marked, so that
    // they do not affect where the model is cut.
    if (loss)
      addCountPass(passes, config);
    passes.addPass(createCutStagesPass());
    if (loss)
      addTrainPasses(passes.nest<ModuleOp>(), config, tapGradients,
                     updatesApart);
  });
}

std::vector<OwningOpRef<ModuleOp>> takeStages(ModuleOp module) {
  std::vector<OwningOpRef<ModuleOp>> parts;
  for (ModuleOp part : llvm::make_early_inc_range(module.getOps<ModuleOp>())) {
    part->remove();
    parts.emplace_back(part);
  }
  return parts;
}

} // namespace cleave::compiler
