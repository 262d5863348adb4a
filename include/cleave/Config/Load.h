// Reads, checks and writes the configuration. The functions throw no
// exceptions: functions that can fail return a ConfigResult. Its message says
// what was found, what was expected, where, and how to fix the error.

#ifndef CLEAVE_CONFIG_LOAD_H
#define CLEAVE_CONFIG_LOAD_H

#include "cleave/Config/Config.h"
#include "cleave/io/Suggest.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace cleave {

struct ConfigError {
  /// The message is one line, in which names and values from files are escaped
  /// (cleave/io/Escape.h).
  ConfigError(const std::string &message);
  std::string message;
};

// A value or an error.
template <typename T> class ConfigResult {
public:
  ConfigResult(T value) : state(std::move(value)) {}
  ConfigResult(ConfigError error) : state(std::move(error)) {}

  explicit operator bool() const { return state.index() == 0; }
  T &operator*() { return std::get<0>(state); }
  const T &operator*() const { return std::get<0>(state); }
  T *operator->() { return &std::get<0>(state); }
  const T *operator->() const { return &std::get<0>(state); }
  const std::string &error() const { return std::get<1>(state).message; }

private:
  std::variant<T, ConfigError> state;
};

// The value of one key that is given on the command line and not in the file.
// `value` is parsed as TOML; if it is not valid TOML, it is a string. `origin`
// is the flag that gave the key.
struct ConfigOverride {
  std::string key;
  std::string value;
  std::string origin = "--set";
};

// Parses the argument of --set: "a.b=v" gives {"a.b", "v"}.
ConfigResult<ConfigOverride> parseOverride(const std::string &text);

struct ConfigSources {
  // `base` is the configuration with which a run was started that is now
  // resumed, as TOML, and `baseName` its name in messages; both are empty for a
  // new run. `file` and `overrides` replace keys of `base`. If they give sizes
  // of mesh axes, the other axes of the mesh in `base` get size 1.
  std::string base, baseName;
  std::string file; // "": none
  std::vector<ConfigOverride> overrides;
};

struct LoadedConfig {
  Config config;
  // Where the value of each key came from ("FILE:line", "--set"), by dotted
  // key. A key that is not listed has its default.
  std::map<std::string, std::string> origins;
};

// Loads the configuration. Each source replaces keys of the previous ones:
// defaults, `base`, `file`, then `overrides` in order. Unknown keys, wrong
// types, values out of range and values that are not supported yet are errors.
ConfigResult<LoadedConfig> loadConfig(const ConfigSources &sources);

// Like loadConfig, but takes the content of a configuration file as `text`.
// Error messages use `name` as the name of this file.
ConfigResult<LoadedConfig>
loadConfigText(const std::string &text, const std::string &name,
               const std::vector<ConfigOverride> &overrides = {});

// Describes a mesh by a text such as "data=2, tensor=4", or "no axes".
std::string describe(const Mesh &mesh);

// Determines the sizes and the order of the mesh axes. `ranks` is --ranks or
// the launcher's world size and must agree with the mesh; it is required if an
// axis has size -1.
ConfigResult<Mesh> resolveMesh(const Config &config,
                               std::optional<int64_t> ranks);

// Returns an error if an axis larger than 1 is used by no enabled strategy and
// no [[shard]] entry, or if an axis that a strategy names does not exist. The
// check does not apply to model files that already contain shardings.
std::optional<ConfigError> checkMeshUse(const Config &config, const Mesh &mesh);

// The mesh axes larger than 1 that shard samples and positions, the axis with
// the slowest links first. Gradients are sums over all these axes.
struct BoundaryAxes {
  std::vector<std::string> samples, positions;
  // The axes of `samples` over which ZeRO replicates. ZeRO shards over the
  // other axes of `samples` and over all axes of `positions`.
  std::vector<std::string> replicas;
  std::vector<std::string> all() const;     // samples, then positions
  std::vector<std::string> sharded() const; // all but the replicas
};
BoundaryAxes boundaryAxes(const Config &config, const Mesh &mesh);

// Returns the axis of the sequence strategy of that kind if the axis is larger
// than 1, otherwise "".
std::string sequenceAxis(const Config &config, const Mesh &mesh,
                         const std::string &kind);

// Returns an error if the configuration selects an element type in which
// programs cannot compute yet. For such types only `cleave explain` works,
// which counts memory and communication.
std::optional<ConfigError> checkTypes(const Config &config);

// Stores the sizes and the order of the axes of `mesh` in the configuration, so
// that writeConfig writes them.
void applyMesh(Config &config, const Mesh &mesh);

// Returns a sentence for the user about each key that was set but has no effect
// on this mesh.
std::vector<std::string> idleKeys(const LoadedConfig &loaded, const Mesh &mesh);

// Returns the number of ranks that a launcher (mpirun, srun, torchrun) has
// started, or nullopt without a launcher.
std::optional<int64_t> launcherWorldSize();

// Returns TOML that is stored in the folder of a run. Loading it gives the same
// configuration.
std::string writeConfig(const Config &config);

// Returns the configuration as JSON on one line, with the same sections as the
// TOML file. It is stored in the manifest of a program.
std::string writeConfigJson(const Config &config);

// Returns every key with its value, its origin and a line of help, as TOML with
// comments.
std::string describeConfig(const LoadedConfig &loaded);

// Returns a page of Markdown with every key: docs/configuration.md.
std::string describeKeys();

// The name that another trainer uses for a key of the configuration.
struct Meaning {
  const char *name;      // the other name, in lower case with underscores
  const char *key;       // the key of this configuration, such as "train.lr"
  const char *note = ""; // how its meaning differs; "": not at all
};
const std::vector<Meaning> &meanings();
// Looks up a name that a user may know from another trainer: a command-line
// flag such as --micro-batch-size, or the last part of a configuration key.
// Case and dashes do not matter. Returns the entry with the corresponding key
// of this configuration; null if the name is unknown.
const Meaning *meaningOf(const std::string &name);
// Returns a text such as "'train.lr'" or "'dims.batch' (the global batch)".
std::string describe(const Meaning &meaning);

} // namespace cleave

#endif // CLEAVE_CONFIG_LOAD_H
