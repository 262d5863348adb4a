// The passes of the import phase.

#include "cleave/Dialect/NN/Transforms/Passes.h"
#include "cleave/Import/ONNX/Import.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"

using namespace mlir;

namespace cleave {

void buildImportPipeline(OpPassManager &manager) {
  OpPassManager &function = manager.nest<func::FuncOp>();
  function.addPass(createFoldShapesPass());
  function.addPass(createRaiseCompositesPass());
  function.addPass(createRollExpertsPass());
  SimplifyPassOptions simplify;
  simplify.parameterViews = true;
  function.addPass(createSimplifyPass(simplify));
  function.addPass(createVerifyConstantsPass());
  function.addPass(createMarkBatchPass());
}

void registerImportPipeline() {
  PassPipelineRegistration<>("nn-import-pipeline",
                             "The passes that follow onnx-import",
                             buildImportPipeline);
}

} // namespace cleave
