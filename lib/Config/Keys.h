// The table of all configuration keys. Reading, checking, writing and `cleave
// config` iterate over this table instead of naming single keys.

#ifndef CLEAVE_LIB_CONFIG_KEYS_H
#define CLEAVE_LIB_CONFIG_KEYS_H

#include "cleave/Config/Config.h"
#include "cleave/Config/Load.h"

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace cleave::config {

using StringList = std::vector<std::string>;

// A pointer to a key's value in a Config; the alternative of the variant is the
// key's type. The maps hold keys with names chosen by the user: mesh axes,
// dimensions, inputs.
using Field =
    std::variant<bool *, int64_t *, double *, std::string *, StringList *,
                 std::vector<double> *, std::vector<StringList> *,
                 std::vector<SequenceParallelConfig> *,
                 std::vector<ShardConfig> *, std::map<std::string, int64_t> *,
                 std::map<std::string, std::string> *>;

enum class Served {
  Yes,
  OnlyDefault, // so far, only the default value of the key is supported
};

// A requirement on the value of a key, in addition to its type.
struct Check {
  // Returns what is wrong with a value ("expected …"), or "" if the value is
  // allowed.
  std::string (*wrong)(Field) = nullptr;
  const char *allowed = ""; // the allowed values, in words
};

// The commands in which a key has an effect.
struct Users {
  const char *commands; // "train, check"
};

struct Key {
  const char *path; // "train.lr"; "dims.*" for a map
  Field (*field)(Config &);
  const char *help;
  Users users;
  const char *values = ""; // "a|b|c": the only legal values
  const char *served = ""; // the supported ones of `values`; "": all
  Served servedNow = Served::Yes;
  const Check *check = nullptr;
};

const std::vector<Key> &keys();

// Returns the name of a field's type for messages, such as "a number".
std::string typeName(Field field);

// Formats the value as TOML.
std::string formatValue(Field field);
std::string formatString(const std::string &value);
// Formats a key, with quotes if TOML requires them.
std::string formatKey(const std::string &name);
// Returns the path of a value: "a.b" for a plain key; for an entry of a map,
// the map's path with the entry's name.
std::string entryPath(const Key &key, const std::string &entry);

// Checks the value of one key in `config`: whether it is one of the legal
// values and within the allowed range, and whether this version of the compiler
// supports it. `origin` says in messages where the value was set.
std::optional<ConfigError> checkKey(const Key &key, Config &config,
                                    const std::string &origin);

} // namespace cleave::config

#endif // CLEAVE_LIB_CONFIG_KEYS_H
