// The one table of the configuration: reading, checking, writing and
// `cleave config` all walk it, and none of them knows a key by name.

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

// Where a key's value is in a Config; the alternative is the key's type. The
// maps hold keys that the user names: mesh axes, dimensions, inputs.
using Field =
    std::variant<bool *, int64_t *, double *, std::string *, StringList *,
                 std::vector<double> *, std::vector<StringList> *,
                 std::vector<SequenceParallelConfig> *,
                 std::vector<ShardConfig> *, std::map<std::string, int64_t> *,
                 std::map<std::string, std::string> *>;

enum class Served {
  Yes,
  OnlyDefault, // the key is read, but another value is refused for now
};

// What a value must be beyond its type.
struct Check {
  // Says what is wrong with a value ("expected …"); empty when nothing is.
  std::string (*wrong)(Field) = nullptr;
  const char *allowed = ""; // in words
};

// Which commands a key changes something for.
struct Users {
  const char *commands; // "train, check"
};

struct Key {
  const char *path; // "train.lr"; "dims.*" for a map
  Field (*field)(Config &);
  const char *help;
  Users users;
  const char *values = ""; // "a|b|c": the only legal values
  const char *served = ""; // of `values`, those served now; "": all
  Served servedNow = Served::Yes;
  const Check *check = nullptr;
};

const std::vector<Key> &keys();

// "a number", as messages call the type of a field.
std::string typeName(Field field);

// The value as TOML. For maps see formatEntry.
std::string formatValue(Field field);
std::string formatString(const std::string &value);
// A key, quoted where TOML wants it.
std::string formatKey(const std::string &name);
// "a.b" for a plain key, the path with the entry's name for a map's.
std::string entryPath(const Key &key, const std::string &entry);

// The checks of one key (values, range, served) and of the whole.
std::optional<ConfigError> checkKey(const Key &key, Config &config,
                                    const std::string &origin);

} // namespace cleave::config

#endif // CLEAVE_LIB_CONFIG_KEYS_H
