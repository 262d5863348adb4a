// cleave compile: a model and a configuration to a folder that cleave-run runs,
// or to the IR after one of the phases.

#include "CompileModel.h"
#include "commands/Commands.h"

#include "cleave/io/File.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/raw_ostream.h"

#include <memory>

using namespace cleave;
using namespace cleave::driver;

static std::optional<Phase> phaseNamed(const std::string &name) {
  return llvm::StringSwitch<std::optional<Phase>>(name)
      .Case("import", Phase::Import)
      .Case("train", Phase::Train)
      .Case("shard", Phase::Shard)
      .Default(std::nullopt);
}

static void writePhase(const std::string &model, const Config &config,
                       const Mesh &mesh, Phase phase,
                       const std::string &output) {
  mlir::MLIRContext context;
  registerAll(context);
  mlir::OwningOpRef<mlir::ModuleOp> module =
      shardModel(model, config, mesh, Purpose::Compile, context,
                 /*readWeights=*/false, nullptr, false, phase);
  std::string text;
  llvm::raw_string_ostream stream(text);
  module->print(stream, mlir::OpPrintingFlags().enableDebugInfo());
  writeFileAtomically(output, text);
}

std::function<int()> driver::addCompile(CLI::App &app) {
  struct Options : CommonOptions {
    std::string model, output, emit = "folder";
  };
  auto options = std::make_shared<Options>();
  app.add_option("model", options->model, "an ONNX file, or nn IR")
      ->type_name("MODEL")
      ->required();
  app.add_option("-o,--output", options->output,
                 "the folder, or the file of IR, to write")
      ->type_name("PATH")
      ->required();
  app.add_option("--emit", options->emit,
                 "folder; or the IR after a phase: import, train, shard (exe: "
                 "not yet supported)")
      ->type_name("KIND");
  addConfigFlags(app, *options);
  addRanksFlag(app, *options);
  return [options] {
    if (options->emit == "exe")
      throw Failure(BadUsage, "--emit exe is not yet supported");
    std::optional<Phase> phase = phaseNamed(options->emit);
    if (!phase && options->emit != "folder")
      throw Failure(BadUsage, "--emit " + options->emit +
                                  ": expected folder, import, train or shard");
    LoadedConfig loaded = loadConfigOrFail(*options);
    refuseBookedTypes(loaded.config);
    Mesh mesh = resolveMeshOrFail(loaded.config, *options, options->model);
    if (phase) {
      writePhase(options->model, loaded.config, mesh, *phase, options->output);
      return Success;
    }
    compileModel(options->model, loaded.config, mesh, Purpose::Compile,
                 /*readWeights=*/false, options->output);
    return Success;
  };
}
