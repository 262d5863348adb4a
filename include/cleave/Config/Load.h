// Reads, checks and writes the configuration. Nothing here throws: functions
// that can fail return a ConfigResult, whose message says what was found, what
// was expected, where, and what to do.

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
  /// One line: names and values of files are escaped (cleave/io/Escape.h).
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
// TOML, it is a string. `origin` is the flag that gave it.
struct ConfigOverride {
  std::string key;
  std::string value;
  std::string origin = "--set";
};

// "a.b=v" -> {"a.b", "v"}.
ConfigResult<ConfigOverride> parseOverride(const std::string &text);

struct ConfigSources {
  // The configuration of a run that is resumed, as TOML, and its name in
  // messages. File and overrides replace its keys. If they give sizes of mesh
  // axes, the other axes of its mesh get size 1.
  std::string base, baseName;
  std::string file; // "": none
  std::vector<ConfigOverride> overrides;
};

struct LoadedConfig {
  Config config;
  // Where a key's value came from ("FILE:line", "--set"), by dotted key; a key
  // that is not here has its default.
  std::map<std::string, std::string> origins;
};

// Loads the configuration: defaults, then the base, the file, and the overrides
// in order. Refuses unknown keys, wrong types, values out of range and values
// that are not supported yet.
ConfigResult<LoadedConfig> loadConfig(const ConfigSources &sources);

// The same for the text of a file, which messages call `name`.
ConfigResult<LoadedConfig>
loadConfigText(const std::string &text, const std::string &name,
               const std::vector<ConfigOverride> &overrides = {});

// "data=2, tensor=4", or "no axes".
std::string describe(const Mesh &mesh);

// The sizes and the order of the mesh. `ranks` is --ranks or the launcher's
// world size and must agree with the mesh; a size of -1 needs it.
ConfigResult<Mesh> resolveMesh(const Config &config,
                               std::optional<int64_t> ranks);

// An error if no enabled strategy and no [[shard]] uses an axis larger than 1,
// or if an axis that a strategy names does not exist. For models without
// shardings of their own.
std::optional<ConfigError> checkMeshUse(const Config &config, const Mesh &mesh);

// The axes larger than 1 that shard samples and positions, slowest first.
// Gradients are sums over all these axes.
struct BoundaryAxes {
  std::vector<std::string> samples, positions;
  // The axes of `samples` over which ZeRO replicates. It shards over the
  // others, and over those of `positions`.
  std::vector<std::string> replicas;
  std::vector<std::string> all() const;     // samples, then positions
  std::vector<std::string> sharded() const; // all but the replicas
};
BoundaryAxes boundaryAxes(const Config &config, const Mesh &mesh);

// The axis of the sequence strategy of that kind if it is larger than 1, else
// "".
std::string sequenceAxis(const Config &config, const Mesh &mesh,
                         const std::string &kind);

// An error for types that `cleave explain` can count memory and communication
// in, but that no program computes in yet.
std::optional<ConfigError> checkTypes(const Config &config);

// Stores resolved sizes and order in the configuration, so that writeConfig
// writes them.
void applyMesh(Config &config, const Mesh &mesh);

// Keys that were set but have no effect on this mesh: a sentence for the user
// about each.
std::vector<std::string> idleKeys(const LoadedConfig &loaded, const Mesh &mesh);

// The number of ranks that a launcher (mpirun, srun, torchrun) has started;
// none outside a launcher.
std::optional<int64_t> launcherWorldSize();

// TOML that reads back to the same configuration, for a run folder.
std::string writeConfig(const Config &config);

// The same as JSON, nested like the file, on one line, for a manifest.
std::string writeConfigJson(const Config &config);

// Every key with its value, where it came from and a line of help, as TOML with
// comments.
std::string describeConfig(const LoadedConfig &loaded);

// Every key as a page of Markdown: docs/configuration.md.
std::string describeKeys();

// A name of other trainers for a key that has another name here.
struct Meaning {
  const char *name;      // theirs, in lower case with underscores
  const char *key;       // ours: "train.lr"
  const char *note = ""; // what is different
};
const std::vector<Meaning> &meanings();
// The meaning of a key's last part or of a flag, in any spelling; or null.
const Meaning *meaningOf(const std::string &name);
// "'train.lr'", "'dims.batch' (the global batch)".
std::string describe(const Meaning &meaning);

} // namespace cleave

#endif // CLEAVE_CONFIG_LOAD_H
