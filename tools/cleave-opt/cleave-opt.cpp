// cleave-opt: runs any pass on any dialect, for lit tests and for inspecting
// single phases. Pass plugins are loaded by --load-pass-plugin.

#include "cleave/Compiler/Dialects.h"
#include "cleave/Compiler/Version.h"
#include "cleave/Dialect/NN/Transforms/Passes.h"
#include "cleave/Init/AllPasses.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/ToolOutputFile.h"

using namespace mlir;

/// Puts nn-verify-types before the passes of the text `builtin.module(...)`.
static LogicalResult prependToText(OpPassManager &passes) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  passes.printAsTextualPipeline(stream);
  text.insert(text.find('(') + 1, "nn-verify-types,");
  FailureOr<OpPassManager> all = parsePassPipeline(text);
  if (failed(all))
    return failure();
  passes = std::move(*all);
  return success();
}

/// Adds nn-verify-types before the passes that the user asked for, since these
/// passes assume that types are supported. Without passes, types are not
/// checked, so any text that is valid for MLIR can be read and printed.
static void verifyTypesFirst(MlirOptMainConfig &config) {
  config.setPassPipelineSetupFn([asked = config](PassManager &passes) {
    passes.addPass(cleave::createVerifyTypesPass());
    if (failed(asked.setupPassPipeline(passes)))
      return failure();
    // Flags like --cse add passes, but --pass-pipeline replaces all passes.
    bool isFirst =
        !passes.empty() && passes.begin()->getArgument() == "nn-verify-types";
    if (!isFirst)
      return passes.empty() ? success() : prependToText(passes);
    if (passes.size() == 1)
      passes.clear();
    return success();
  });
}

/// MLIR's own main function has no way to change the configuration.
static LogicalResult run(MlirOptMainConfig config, const std::string &input,
                         const std::string &output, DialectRegistry &registry) {
  verifyTypesFirst(config);
  std::string error;
  std::unique_ptr<llvm::MemoryBuffer> file = openInputFile(input, &error);
  if (!file) {
    llvm::errs() << error << "\n";
    return failure();
  }
  std::unique_ptr<llvm::ToolOutputFile> out = openOutputFile(output, &error);
  if (!out) {
    llvm::errs() << error << "\n";
    return failure();
  }
  if (failed(MlirOptMain(out->os(), std::move(file), registry, config)))
    return failure();
  out->keep();
  return success();
}

int main(int argc, char **argv) {
  cleave::compiler::addVersionPrinter();
  cleave::registerAllPasses();
  DialectRegistry registry;
  cleave::compiler::registerAllDialects(registry);
  auto [input, output] = registerAndParseCLIOptions(
      argc, argv, "cleave optimizer driver\n", registry);
  MlirOptMainConfig config = MlirOptMainConfig::createFromCLOptions();
  if (config.shouldShowDialects() || config.shouldListPasses())
    return asMainReturnCode(MlirOptMain(argc, argv, input, output, registry));
  llvm::InitLLVM init(argc, argv);
  return asMainReturnCode(run(config, input, output, registry));
}
