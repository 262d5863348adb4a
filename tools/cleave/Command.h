// What a command of the driver is, and what commands share: the configuration's
// flags, and how a command fails.

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

// Fails with BadUsage unless `path` is a file that can be read; `wanted` says
// what it should be, e.g. "a model".
void requireFile(const std::string &path, const std::string &wanted);

// Thrown by commands, caught in main, printed as "cleave: error: …".
class Failure : public std::runtime_error {
public:
  /// A message of one line.
  Failure(ExitCode code, const std::string &message)
      : std::runtime_error(escaped(message)), code(code) {}
  /// Several messages, which may go on in lines that are indented.
  Failure(ExitCode code, const std::vector<std::string> &messages)
      : std::runtime_error(linesOf(messages)), code(code) {}
  ExitCode code;

private:
  static std::string linesOf(const std::vector<std::string> &messages);
};

// `add` declares the command's flags and returns what runs after parsing; its
// result is the exit code.
struct Command {
  const char *name;
  const char *summary;
  std::function<int()> (*add)(CLI::App &app);
};

// "cleave 0.1.0 (1a2b3c4d5e6f)": with the commit that it was built from, where
// that is known.
std::string versionText();

// The flags of every command that reads the configuration.
struct CommonOptions {
  std::string configFile;
  // A configuration below that of the file, as TOML, and what messages call it.
  std::string base, baseName;
  std::vector<std::string> sets;
  std::optional<int64_t> ranks;
  std::string cache;
  std::vector<std::string> binds; // NAME=FILE.npy|VALUE
  // What flags of the command itself set, e.g. {"data.path", FILE, "--data"};
  // they come after --set.
  std::vector<ConfigOverride> overrides;
};

void addConfigFlags(CLI::App &app, CommonOptions &options);
// --bind, of commands that read a model.
void addBindFlag(CLI::App &app, CommonOptions &options);
// --dump-phases, of commands that compile.
void addDumpFlag(CLI::App &app);
void addRanksFlag(CLI::App &app, CommonOptions &options);
void addCacheFlag(CLI::App &app, CommonOptions &options);

// What this process asks of all passes.
PassFlags &passFlags();

// The configuration that the flags ask for; fails with BadUsage.
LoadedConfig loadConfigOrFail(const CommonOptions &options);

// --ranks, else the launcher's world size; none where neither is given. They
// must agree where both are.
std::optional<int64_t> rankCount(const CommonOptions &options);

// The mesh for these ranks, put into `config`; that of the model where it is a
// .mlir file with one. Fails with BadUsage.
Mesh resolveMeshOrFail(Config &config, const CommonOptions &options,
                       const std::string &model = "");

// Refuses an output that is the model, a file of its weights, the configuration
// or a file that it names. To be called before anything is written.
void protectInputs(const std::string &output, const std::string &model,
                   const CommonOptions &options, const Config &config);

// Those of cleave/Compiler/Import.h. Fail with BadUsage.
void bindGivenInputs(Config &config, const std::string &model,
                     const std::string &arrays);
void bindDataInputs(LoadedConfig &loaded, const std::string &model,
                    const std::string &data);

// Warns of keys that were set and do nothing.
void warnOfIdleKeys(const LoadedConfig &loaded, const Mesh &mesh);

// Refuses types that no program computes in yet.
void refuseBookedTypes(const Config &config);

} // namespace cleave::driver

#endif // CLEAVE_TOOLS_COMMAND_H
