// The flags that commands share.

#include "Command.h"
#include "Diagnostics.h"

#include "cleave/Compiler/Cache.h"
#include "cleave/Compiler/Import.h"
#include "cleave/Compiler/Sharded.h"
#include "cleave/io/File.h"
#include "cleave/io/Input.h"

#include <cstdlib>
#include <filesystem>
#include <map>
#include <unistd.h>

using namespace cleave;
using namespace cleave::driver;

void driver::requireFile(const std::string &path, const std::string &wanted) {
  if (std::string fault = faultOfFile(path, wanted); !fault.empty())
    throw Failure(BadUsage, fault);
}

void driver::addConfigFlags(CLI::App &app, CommonOptions &options) {
  app.add_option("--config", options.configFile,
                 "configuration, usually parallel.toml")
      ->type_name("FILE");
  app.add_option("--set", options.sets,
                 "set one key, e.g. --set mesh.data=4; can be repeated")
      ->option_text("KEY=VALUE") // CLI11 would add "..."
      ->allow_extra_args(false);
}

void driver::addBindFlag(CLI::App &app, CommonOptions &options) {
  app.add_option("--bind", options.binds,
                 "give an input of the model one value, the same for all "
                 "samples and steps; can be repeated")
      ->option_text("NAME=FILE.npy|VALUE")
      ->allow_extra_args(false);
}

/// Converts NAME=FILE.npy|VALUE to the configuration key that holds it, so that
/// config.toml records it.
static ConfigOverride overrideOf(const std::string &bind) {
  size_t equals = bind.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == bind.size())
    throw Failure(BadUsage, "--bind " + bind +
                                ": expected NAME=FILE.npy or NAME=VALUE, e.g. "
                                "--bind temperature=0.7");
  // Quotes a string as TOML, because names and files may contain any character.
  auto quoted = [](const std::string &text) {
    std::string result = "\"";
    for (char c : text) {
      if (c == '"' || c == '\\')
        result += '\\';
      result += c;
    }
    return result + "\"";
  };
  return {"data.bind." + quoted(bind.substr(0, equals)),
          quoted(bind.substr(equals + 1)), "--bind"};
}

PassFlags &driver::passFlags() {
  static PassFlags flags;
  return flags;
}

void driver::addDumpFlag(CLI::App &app) {
  app.add_option_function<std::string>(
         "--dump-phases", [](const std::string &) {}, // see beginDumps
         "write the program after each phase into this folder, as "
         "NUMBER-PHASE.mlir; earlier dumps there are removed")
      ->type_name("DIR");
}

void driver::beginDumps(const CLI::App &command) {
  const CLI::Option *flag = command.get_option_no_throw("--dump-phases");
  if (!flag || flag->empty())
    return;
  namespace fs = std::filesystem;
  auto folder = flag->as<std::string>();
  std::string name = "--dump-phases " + folder;
  // A model may be a dump itself.
  auto model = command.get_option("model")->as<std::string>();
  std::error_code error;
  if (fs::equivalent(fs::path(model).remove_filename() / ".", folder, error) &&
      PassFlags::isDump(model))
    throw Failure(BadUsage, name + ": dumps there are removed, but '" + model +
                                "' is one; give another folder");
  if (std::string fault = passFlags().dumpInto(folder); !fault.empty())
    throw Failure(BadUsage, name + ": " + fault);
}

void driver::addRanksFlag(CLI::App &app, CommonOptions &options) {
  app.add_option("--ranks", options.ranks,
                 "number of ranks; default: the size of the mesh")
      ->type_name("N");
}

void driver::addCacheFlag(CLI::App &app, CommonOptions &options) {
  options.cache = compiler::defaultCacheFolder();
  app.add_option("--cache", options.cache, "folder of compiled programs")
      ->type_name("DIR")
      ->capture_default_str();
}

LoadedConfig driver::loadConfigOrFail(const CommonOptions &options) {
  ConfigSources sources;
  sources.file = options.configFile;
  sources.base = options.base;
  sources.baseName = options.baseName;
  for (const std::string &text : options.sets) {
    auto override_ = parseOverride(text);
    if (!override_)
      throw Failure(BadUsage, override_.error());
    sources.overrides.push_back(*override_);
  }
  std::map<std::string, std::string> bound; // what --bind gave each input
  for (const std::string &bind : options.binds) {
    sources.overrides.push_back(overrideOf(bind));
    std::string name = bind.substr(0, bind.find('='));
    auto [first, isNew] = bound.emplace(name, bind);
    if (!isNew)
      throw Failure(BadUsage, "--bind " + bind + ": --bind " + first->second +
                                  " gives '" + name +
                                  "' a value already; leave one out");
  }
  sources.overrides.insert(sources.overrides.end(), options.overrides.begin(),
                           options.overrides.end());
  auto loaded = loadConfig(sources);
  if (!loaded)
    throw Failure(BadUsage, loaded.error());
  return *loaded;
}

std::optional<int64_t> driver::rankCount(const CommonOptions &options) {
  std::optional<int64_t> world = launcherWorldSize();
  if (options.ranks && world && *options.ranks != *world)
    throw Failure(BadUsage, "--ranks " + std::to_string(*options.ranks) +
                                ", but the launcher started " +
                                std::to_string(*world) + " ranks");
  return options.ranks ? options.ranks : world;
}

void driver::warnOfIdleKeys(const LoadedConfig &loaded, const Mesh &mesh) {
  for (const std::string &text : idleKeys(loaded, mesh))
    warn(text);
}

void driver::refuseBookedTypes(const Config &config) {
  if (auto error = checkTypes(config))
    throw Failure(BadUsage, error->message);
}

Mesh driver::resolveMeshOrFail(Config &config, const CommonOptions &options,
                               const std::string &model) {
  std::optional<int64_t> ranks = rankCount(options);
  std::optional<Mesh> own = compiler::meshInFile(model);
  if (own && ranks && *ranks != own->ranks())
    throw Failure(BadUsage, "'" + model + "' has a dist.mesh of " +
                                std::to_string(own->ranks()) + " ranks (" +
                                describe(*own) + "), but there are " +
                                std::to_string(*ranks) + "; start " +
                                std::to_string(own->ranks()));
  auto mesh = resolveMesh(config, own ? std::nullopt : ranks);
  if (!mesh)
    throw Failure(BadUsage, mesh.error());
  if (auto error = checkMeshUse(config, *mesh))
    throw Failure(BadUsage, error->message);
  applyMesh(config, *mesh);
  return own ? *own : *mesh;
}

void driver::protectInputs(const std::string &output, const std::string &model,
                           const CommonOptions &options, const Config &config) {
  std::error_code error;
  if (!std::filesystem::exists(output, error))
    return;
  std::vector<std::string> inputs = {model,
                                     options.configFile,
                                     config.data.path,
                                     config.data.evalPath,
                                     config.parallel.pipeline.table,
                                     config.target.cluster};
  for (const auto &[name, value] : config.data.bind)
    inputs.push_back(value);
  mlir::MLIRContext context;
  Diagnostics diagnostics(context); // reported when the model is read
  auto files = compiler::filesOfModel(model, config, context);
  if (mlir::succeeded(files))
    inputs.insert(inputs.end(), files->begin(), files->end());
  refuseToReplace(output, inputs);
}

void driver::bindGivenInputs(Config &config, const std::string &model,
                             const std::string &arrays) {
  mlir::MLIRContext context;
  Diagnostics diagnostics(context);
  diagnostics.need(compiler::bindGivenInputs(config, model, arrays, context));
}

void driver::bindDataInputs(LoadedConfig &loaded, const std::string &model,
                            const std::string &data) {
  mlir::MLIRContext context;
  Diagnostics diagnostics(context);
  diagnostics.need(compiler::bindDataInputs(loaded, model, data, context));
}
