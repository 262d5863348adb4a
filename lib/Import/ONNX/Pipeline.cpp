// The passes of the import phase.

#include "cleave/Import/ONNX/Import.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

namespace cleave {

void buildImportPipeline(OpPassManager &manager) {
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
}

void registerImportPipeline() {
  PassPipelineRegistration<>("nn-import-pipeline",
                             "The passes that follow onnx-import",
                             buildImportPipeline);
}

} // namespace cleave
