// Registers every pass and pipeline by name, for tools and plugins that run
// pipelines from text.

#include "cleave/Init/AllPasses.h"

#include "cleave/Actions/RegisterPasses.h"
#include "cleave/Autodiff/RegisterPasses.h"
#include "cleave/Check/RegisterPasses.h"
#include "cleave/Codegen/RegisterPasses.h"
#include "cleave/Compiler/Backend.h"
#include "cleave/Compiler/RegisterPasses.h"
#include "cleave/Conversion/ToRT/RegisterPasses.h"
#include "cleave/Dialect/NN/Transforms/RegisterPasses.h"
#include "cleave/Fusion/RegisterPasses.h"
#include "cleave/Import/ONNX/Import.h"
#include "cleave/Memory/RegisterPasses.h"
#include "cleave/Partition/RegisterPasses.h"
#include "cleave/Schedule/RegisterPasses.h"
#include "cleave/Stage/RegisterPasses.h"
#include "cleave/Strategy/RegisterPasses.h"

#include "mlir/Transforms/Passes.h"

namespace cleave {

void registerAllPasses() {
  mlir::registerTransformsPasses();
  nn::registerNNPasses();
  registerImportPipeline();
  autodiff::registerAutodiffPasses();
  stage::registerStagePasses();
  strategy::registerStrategyPasses();
  check::registerCheckPasses();
  conversion::registerToRTPasses();
  memory::registerMemoryPasses();
  schedule::registerSchedulePasses();
  registerPartitionPasses();
  actions::registerActionsPasses();
  registerPartitionPipeline();
  kernels::registerFusionPasses();
  codegen::registerCodegenPasses();
  registerBackendPhases();
  compiler::registerCompilerPasses();
}

} // namespace cleave
