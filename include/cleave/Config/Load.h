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

// One key given outside the file. `value` is parsed as TOML; if it is not valid
// TOML, it is a string. `origin` is the flag that the key was given with.
struct ConfigOverride {
  std::string key;
  std::string value;
  std::string origin = "--set";
};

// "a.b=v" -> {"a.b", "v"}.
ConfigResult<ConfigOverride> parseOverride(const std::string &text);

struct ConfigSources {
  // `base` is the configuration of a run that is resumed, as TOML, and
  // `baseName` its name in messages. The file and the overrides replace keys of
  // `base`. If they give sizes of mesh axes, the other axes of the base's mesh
  // get size 1.
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

// Loads the configuration: defaults, then the base, the file, and the overrides
// in order. Unknown keys, wrong types, values out of range and values that are
// not supported yet are errors.
ConfigResult<LoadedConfig> loadConfig(const ConfigSources &sources);

// Like loadConfig, but for the text of a file, which messages call `name`.
ConfigResult<LoadedConfig>
loadConfigText(const std::string &text, const std::string &name,
               const std::vector<ConfigOverride> &overrides = {});

// Returns a text such as "data=2, tensor=4", or "no axes".
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

// The axes larger than 1 that shard samples and positions, slowest first.
// Gradients are sums over all these axes.
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

// Stores resolved sizes and order in the configuration, so that writeConfig
// writes them.
void applyMesh(Config &config, const Mesh &mesh);

// Returns a sentence for the user about each key that was set but has no effect
// on this mesh.
std::vector<std::string> idleKeys(const LoadedConfig &loaded, const Mesh &mesh);

// Returns the number of ranks that a launcher (mpirun, srun, torchrun) has
// started, or nullopt without a launcher.
std::optional<int64_t> launcherWorldSize();

// Returns TOML that reads back to the same configuration, for a run folder.
std::string writeConfig(const Config &config);

// Returns the configuration as JSON with the sections of the file, on one line,
// for a manifest.
std::string writeConfigJson(const Config &config);

// Returns every key with its value, its origin and a line of help, as TOML with
// comments.
std::string describeConfig(const LoadedConfig &loaded);

// Returns a page of Markdown with every key: docs/configuration.md.
std::string describeKeys();

// A name from another trainer for a key that has a different name here.
struct Meaning {
  const char *name;      // theirs, in lower case with underscores
  const char *key;       // ours: "train.lr"
  const char *note = ""; // what is different
};
const std::vector<Meaning> &meanings();
// Looks up a name that a user may know from another trainer: a command-line
// flag such as --micro-batch-size, or the last part of a configuration key.
// Case and dashes do not matter. Returns the key that has this meaning here;
// null if the name is unknown.
const Meaning *meaningOf(const std::string &name);
// Returns a text such as "'train.lr'" or "'dims.batch' (the global batch)".
std::string describe(const Meaning &meaning);

} // namespace cleave

#endif // CLEAVE_CONFIG_LOAD_H
