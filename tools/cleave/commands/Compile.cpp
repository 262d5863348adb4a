// cleave compile: a model and a configuration to a folder that cleave-run runs.

#include "CompileModel.h"
#include "commands/Commands.h"

#include <iostream>
#include <memory>

using namespace cleave;
using namespace cleave::driver;

std::function<int()> driver::addCompile(CLI::App &app) {
  struct Options : CommonOptions {
    std::string model, output, emit = "folder";
  };
  auto options = std::make_shared<Options>();
  app.add_option("model", options->model, "an ONNX file, or nn IR")
      ->type_name("MODEL")
      ->required();
  app.add_option("-o,--output", options->output, "the folder to write")
      ->type_name("DIR")
      ->required();
  app.add_option("--emit", options->emit, "folder (exe: not yet supported)")
      ->type_name("KIND");
  addConfigFlags(app, *options);
  addRanksFlag(app, *options);
  return [options] {
    if (options->emit == "exe")
      throw Failure(BadUsage, "--emit exe is not yet supported");
    if (options->emit != "folder")
      throw Failure(BadUsage,
                    "--emit " + options->emit + ": expected folder or exe");
    LoadedConfig loaded = loadConfigOrFail(*options);
    Mesh mesh = resolveMeshOrFail(loaded.config, *options);
    compileModel(options->model, loaded.config, mesh, Purpose::Compile,
                 /*readWeights=*/false, options->output);
    return Success;
  };
}
