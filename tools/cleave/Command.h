// The interface of the driver's commands, and what they share: the flags of the
// configuration, and how a command fails.

#ifndef CLEAVE_TOOLS_COMMAND_H
#define CLEAVE_TOOLS_COMMAND_H

#include "cleave/Config/Load.h"
#include "cleave/Support/Passes.h"
#include "cleave/io/Escape.h"

#include <CLI/CLI.hpp>

#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace cleave::driver {

enum ExitCode {
  Success = 0,
  AnswerIsNo = 1, // a check failed, a plan is infeasible
  BadUsage = 2,   // wrong usage or bad input, known before running
  RunFailed = 3,  // a rank died, a device refused, a collective timed out
};

// Fails with BadUsage unless `path` is a readable file. `wanted` says what it
// should be, such as "a model".
void requireFile(const std::string &path, const std::string &wanted);

// Thrown by commands, caught in main, printed as "cleave: error: …".
class Failure : public std::runtime_error {
public:
  /// An error with a message of one line.
  Failure(ExitCode code, const std::string &message)
      : std::runtime_error(escaped(message)), code(code) {}
  /// An error with several messages. Each may have continuation lines, which
  /// are indented.
  Failure(ExitCode code, const std::vector<std::string> &messages)
      : std::runtime_error(linesOf(messages)), code(code) {}
  ExitCode code;

private:
  static std::string linesOf(const std::vector<std::string> &messages);
};

// A command. `add` declares its flags and returns the function that runs after
// parsing, whose result is the exit code.
struct Command {
  const char *name;
  const char *summary;
  std::function<int()> (*add)(CLI::App &app);
};

// Returns "cleave 0.1.0 (1a2b3c4d5e6f)", with the commit that it was built
// from, if it is known.
std::string versionText();

// The flags of every command that reads the configuration.
struct CommonOptions {
  std::string configFile;
  // A further configuration as TOML, with lower priority than the configuration
  // file, and its name for messages. A resumed run takes it from its
  // checkpoint.
  std::string base, baseName;
  std::vector<std::string> sets;
  std::optional<int64_t> ranks;
  std::string cache;
  std::vector<std::string> binds; // NAME=FILE.npy|VALUE
  // Keys that the command's own flags set, such as {"data.path", FILE,
  // "--data"}. They have priority over --set.
  std::vector<ConfigOverride> overrides;
};

void addConfigFlags(CLI::App &app, CommonOptions &options);
// Adds the flag --bind, for commands that read a model.
void addBindFlag(CLI::App &app, CommonOptions &options);
// Adds the flag --dump-phases, for commands that compile.
void addDumpFlag(CLI::App &app);
// Creates the folder of --dump-phases, if the command has this flag and the
// user gave it. Called after the flags are parsed.
void beginDumps(const CLI::App &command);
void addRanksFlag(CLI::App &app, CommonOptions &options);
void addCacheFlag(CLI::App &app, CommonOptions &options);

// Returns the flags that apply to all passes in this process, such as MLIR's
// flags for printing IR.
PassFlags &passFlags();

// Loads the configuration that the flags select; fails with BadUsage.
LoadedConfig loadConfigOrFail(const CommonOptions &options);

// Returns --ranks, else the launcher's world size, else nullopt. Fails if both
// are given and differ.
std::optional<int64_t> rankCount(const CommonOptions &options);

// Resolves the mesh for the number of ranks and stores it in `config`. If a
// .mlir model has a mesh of its own, that mesh is used. Fails with BadUsage.
Mesh resolveMeshOrFail(Config &config, const CommonOptions &options,
                       const std::string &model = "");

// Refuses an output path that is an input: the model, one of its weight files,
// the configuration, or a file that the configuration names. Must be called
// before anything is written.
void protectInputs(const std::string &output, const std::string &model,
                   const CommonOptions &options, const Config &config);

// These functions call those of cleave/Compiler/Import.h, and fail with
// BadUsage on errors.
void bindGivenInputs(Config &config, const std::string &model,
                     const std::string &arrays);
void bindDataInputs(LoadedConfig &loaded, const std::string &model,
                    const std::string &data);

// Warns of keys that were set and have no effect.
void warnOfIdleKeys(const LoadedConfig &loaded, const Mesh &mesh);

// Refuses data types that the configuration names and that are not implemented
// yet.
void refuseBookedTypes(const Config &config);

} // namespace cleave::driver

#endif // CLEAVE_TOOLS_COMMAND_H
