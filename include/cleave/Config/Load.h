// Reads, checks and writes the configuration. Nothing here throws: what can
// fail returns a ConfigResult, whose message says what was found, what was
// expected, where, and what to do.

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

// A value or the reason why there is none.
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

// One key given outside the file. `value` is parsed as TOML and, where it is
// none, taken as a string. `origin` is what the user typed it as: "--set".
struct ConfigOverride {
  std::string key;
  std::string value;
  std::string origin = "--set";
};

// "a.b=v" -> {"a.b", "v"}.
ConfigResult<ConfigOverride> parseOverride(const std::string &text);

struct ConfigSources {
  // Below all others, as TOML, and what messages call it: what a run was made
  // with that goes on. Where sizes of mesh axes are given on top of it, those
  // of its mesh that are not named have one rank.
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

// Defaults, then the base, the file, and the overrides in order. Refuses
// unknown keys, wrong types, values out of range and values that are not served
// yet.
ConfigResult<LoadedConfig> loadConfig(const ConfigSources &sources);

// The same for the text of a file; `name` stands for it in messages.
ConfigResult<LoadedConfig>
loadConfigText(const std::string &text, const std::string &name,
               const std::vector<ConfigOverride> &overrides = {});

// "data=2, tensor=4", or "no axes".
std::string describe(const Mesh &mesh);

// The sizes and the order of the mesh. `ranks` is --ranks or the launcher's
// world size and must agree with the mesh; a size of -1 needs it.
ConfigResult<Mesh> resolveMesh(const Config &config,
                               std::optional<int64_t> ranks);

// Every axis larger than 1 must be used by a strategy that is on, or by a
// [[shard]]; an axis that a strategy names must exist. For models that bring no
// shardings of their own.
std::optional<ConfigError> checkMeshUse(const Config &config, const Mesh &mesh);

// The axes larger than 1 over which samples and positions are split, slowest
// first. Every rank has its own, so that gradients are sums over all of them.
struct BoundaryAxes {
  std::vector<std::string> samples, positions;
  // Those of the samples over which ZeRO keeps replicas; it splits over the
  // others, and over the positions'.
  std::vector<std::string> replicas;
  std::vector<std::string> all() const;     // samples, then positions
  std::vector<std::string> sharded() const; // all but the replicas
};
BoundaryAxes boundaryAxes(const Config &config, const Mesh &mesh);

// The axis of the sequence strategy of that kind, where it is larger than 1;
// else "".
std::string sequenceAxis(const Config &config, const Mesh &mesh,
                         const std::string &kind);

// Types that memory and communication are booked in, but that no program
// computes in yet.
std::optional<ConfigError> checkTypes(const Config &config);

// Puts resolved sizes and order back, so that what is written names them.
void applyMesh(Config &config, const Mesh &mesh);

// What a user should know of keys that were set and do nothing on this mesh, a
// sentence each.
std::vector<std::string> idleKeys(const LoadedConfig &loaded, const Mesh &mesh);

// The number of ranks that a launcher (mpirun, srun, torchrun) has started;
// none outside a launcher.
std::optional<int64_t> launcherWorldSize();

// TOML that reads back to the same configuration: what a run folder keeps.
std::string writeConfig(const Config &config);

// The same as JSON, nested like the file, on one line: what a manifest keeps.
std::string writeConfigJson(const Config &config);

// Every key with its value, where it came from and a line of help, as TOML with
// comments.
std::string describeConfig(const LoadedConfig &loaded);

// Every key as a page of Markdown: docs/configuration.md.
std::string describeKeys();

// What other trainers call something that has another name here.
struct Meaning {
  const char *name;      // theirs, in small letters with underscores
  const char *key;       // ours: "train.lr"
  const char *note = ""; // what is different
};
const std::vector<Meaning> &meanings();
// That of a key's last part or of a flag, however it is spelt; null: none.
const Meaning *meaningOf(const std::string &name);
// "'train.lr'", "'dims.batch' (the global batch)".
std::string describe(const Meaning &meaning);

} // namespace cleave

#endif // CLEAVE_CONFIG_LOAD_H
