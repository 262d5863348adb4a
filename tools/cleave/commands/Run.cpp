// cleave train and cleave infer: compile the model (with a cache), then execute
// cleave-run.

#include "../../cleave-run/Arguments.h"
#include "../../cleave-run/Flags.h"
#include "Diagnostics.h"
#include "Preflight.h"
#include "commands/Commands.h"
#include "commands/ResumeRun.h"

#include "cleave/Compiler/Compiler.h"
#include "cleave/io/Error.h"
#include "cleave/trainer/Checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <unistd.h>

using namespace cleave;
using namespace cleave::driver;

namespace {

struct Options : CommonOptions {
  std::string model;
  RunFlags flags;
  // The options that cleave-run also has, which are passed on.
  std::vector<CLI::Option *> handedOn;
};

// Replaces this process by `cleave-run FOLDER ACTION flags...`. `ps` still
// shows the user's command line. `settled` has flags with values, which replace
// those that the user gave.
[[noreturn]] void
become(const Options &options, const std::string &folder,
       const std::string &action,
       const std::vector<std::pair<std::string, std::string>> &settled = {}) {
  std::error_code error;
  std::filesystem::path self =
      std::filesystem::read_symlink("/proc/self/exe", error);
  std::string program = (self.parent_path() / "cleave-run").string();
  // The first word is "cleave", so that error messages begin with the name of
  // the command that the user called.
  std::vector<std::string> words = {"cleave", folder, action};
  for (const CLI::Option *option : options.handedOn) {
    // get_name() is empty for a hidden option.
    const std::string name = "--" + option->get_lnames().front();
    if (!option->count() ||
        std::any_of(settled.begin(), settled.end(),
                    [&](const auto &entry) { return entry.first == name; }))
      continue;
    words.push_back(name);
    if (option->get_items_expected_max() == 0) // a flag
      continue;
    std::string value;
    for (const std::string &part : option->results())
      value += (value.empty() ? "" : ",") + part;
    words.push_back(value);
  }
  for (const auto &[name, value] : settled)
    if (!value.empty())
      words.insert(words.end(), {name, value});
  std::vector<std::string> own = ownCommandLine();
  own.resize(std::max<size_t>(1, own.size()));
  own[0] = words[0];
  ::setenv(kArgumentsVariable, packWords(words).c_str(), /*overwrite=*/1);
  passFlags().report();
  std::cout.flush();
  ::execv(program.c_str(), argvOf(own).data());
  throw Failure(RunFailed,
                "'" + program + "' cannot be started: " + std::strerror(errno));
}

std::shared_ptr<Options> addFlags(CLI::App &app,
                                  void (*own)(CLI::App &, RunFlags &)) {
  auto options = std::make_shared<Options>();
  own(app, options->flags);
  addExecutorFlags(app, options->flags);
  for (CLI::Option *option : app.get_options())
    if (option->get_name() != "--help" && option->get_name() != "--ranks")
      options->handedOn.push_back(option);
  app.remove_option(app.get_option("--ranks"));
  app.add_option("model", options->model, "an ONNX file, or nn IR")
      ->type_name("MODEL")
      ->required();
  addConfigFlags(app, *options);
  addBindFlag(app, *options);
  addDumpFlag(app);
  addRanksFlag(app, *options);
  addCacheFlag(app, *options);
  return options;
}

// Returns the folder of the compiled model in the cache; compiles it first if
// necessary.
std::string compileCached(const Options &options, const Config &config,
                          const Mesh &mesh, compiler::Purpose purpose) {
  mlir::MLIRContext context;
  Diagnostics diagnostics(context);
  compiler::CompilerOptions asked;
  asked.purpose = purpose;
  if (purpose == compiler::Purpose::Train)
    asked.afterLoss = [&](mlir::ModuleOp model) {
      return checkTraining(model, config, mesh);
    };
  compiler::Compiler compiler(context, config, mesh, asked);
  std::string folder =
      diagnostics.need(compiler.compileCached(options.model, options.cache, [] {
        std::cerr << "another process compiles this model; waiting for it\n";
      }));
  // If the program was in the cache, no pass has run. If the user gave flags
  // that print or store what passes do, the passes run now, only for this
  // output.
  if (passFlags().areUnused() && failed(compiler.lower(options.model)))
    diagnostics.fail();
  return folder;
}

// Refuses missing data before the model is compiled.
void requireData(const std::string &path) {
  if (path.empty())
    throw Failure(BadUsage,
                  "no data to train on; give --data FILE or data.path");
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    return;
  requireFile(path, "data");
  if (std::filesystem::file_size(path, error) == 0)
    throw Failure(BadUsage, path + ": is empty, expected data to train on");
}

// Returns the weights file to use. For a run's folder it is the file of the
// newest checkpoint, which is printed.
std::string requireWeights(const std::string &path) {
  if (path.empty())
    return path;
  namespace fs = std::filesystem;
  std::string file = weightsFileOf(path);
  requireFile(file, "weights");
  std::error_code error;
  if (!fs::equivalent(fs::path(file).parent_path(), path, error) &&
      fs::is_directory(path, error))
    std::cout << "the weights are those of " << file << "\n";
  return file;
}

} // namespace

std::function<int()> driver::addTrain(CLI::App &app) {
  auto options = addFlags(app, addTrainFlags);
  return [options] {
    RunPlan plan(options->flags.train, options->model, *options);
    LoadedConfig loaded = loadConfigOrFail(*options);
    refuseBookedTypes(loaded.config);
    Mesh mesh = resolveMeshOrFail(loaded.config, *options, options->model);
    warnOfIdleKeys(loaded, mesh);
    chooseTransport(loaded.config.target.transport, mesh.ranks(),
                    loaded.config.target.kind);
    const std::string &flag = options->flags.train.data;
    const std::string data = flag.empty() ? loaded.config.data.path : flag;
    plan.checkModel(loaded.config, options->model);
    plan.checkData(loaded, options->model, data);
    requireData(data);
    // A resumed run has weights of its own, and the weights it started with may
    // be gone.
    const std::string weights =
        plan.checkpoint().empty() ? requireWeights(options->flags.train.weights)
                                  : options->flags.train.weights;
    checkMachine(loaded.config);
    warnOfCores(loaded.config, mesh);
    bindDataInputs(loaded, options->model, data);
    plan.settle(loaded.config);
    loaded.config.data.path = data;
    std::string folder =
        compileCached(*options, loaded.config, mesh, compiler::Purpose::Train);
    std::vector<std::pair<std::string, std::string>> settled = {
        {"--resume", plan.isAuto() ? "auto" : plan.checkpoint()},
        {"--data", data},
        {"--weights", weights},
        {"--horizon", std::to_string(plan.horizon)}};
    for (const std::string &key : plan.accepted)
      settled.emplace_back("--accept", key);
    become(*options, folder, "train", settled);
    return Success;
  };
}

std::function<int()> driver::addInfer(CLI::App &app) {
  auto options = addFlags(app, addInferFlags);
  return [options] {
    LoadedConfig loaded = loadConfigOrFail(*options);
    refuseBookedTypes(loaded.config);
    Mesh mesh = resolveMeshOrFail(loaded.config, *options, options->model);
    chooseTransport(loaded.config.target.transport, mesh.ranks(),
                    loaded.config.target.kind);
    requireFile(options->flags.infer.inputs, "an .npz");
    checkMachine(loaded.config);
    const std::string weights = requireWeights(options->flags.infer.weights);
    protectInputs(options->flags.infer.outputs, options->model, *options,
                  loaded.config);
    bindGivenInputs(loaded.config, options->model, options->flags.infer.inputs);
    std::string folder =
        compileCached(*options, loaded.config, mesh, compiler::Purpose::Infer);
    become(*options, folder, "infer", {{"--weights", weights}});
    return Success;
  };
}
