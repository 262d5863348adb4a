// Converts TOML to a Config. For the configuration file and for each override
// (--set), walks over the TOML tables and looks up each key in the table of
// keys. Then runs the checks.

#include "cleave/Config/Load.h"

#include "KeyScan.h"
#include "Keys.h"
#include "ParsePath.h"
#include "ReadNode.h"

#include "cleave/io/Escape.h"
#include "cleave/io/Input.h"

#include <algorithm>
#include <sstream>

using namespace cleave;
using namespace cleave::config;

ConfigError::ConfigError(const std::string &message)
    : message(escaped(message)) {}

namespace {

std::string dotted(const Path &path) {
  std::string text;
  for (const std::string &part : path)
    text += (text.empty() ? "" : ".") + part;
  return text;
}

bool has(const std::vector<std::string> &names, const std::string &name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Applies the TOML of one source after another to a configuration.
class Loader {
public:
  LoadedConfig loaded;

  std::optional<ConfigError> applyFile(const std::string &text,
                                       const std::string &name);
  std::optional<ConfigError> applyOverride(const ConfigOverride &override_);
  std::optional<ConfigError> check();

  /// If the user sets sizes of mesh axes on top of a base configuration, the
  /// base configuration's other axes get size 1.
  void settleMesh(const std::string &baseName);

private:
  // Where a value comes from: a file, whose TOML nodes have line numbers, or an
  // override (--set).
  struct Source {
    std::string name;
    bool hasLines = false;
    const std::string *raw = nullptr; // the text of an override's value
  };

  std::optional<ConfigError> apply(const Path &path, const toml::node &node,
                                   const Source &source);
  std::optional<ConfigError>
  applyTable(const Path &path, const toml::table &table, const Source &source);
  std::optional<ConfigError> assign(const Key &key, const Path &path,
                                    const toml::node &node,
                                    const Source &source);
  ConfigError unknown(const Path &path, const toml::node &node,
                      const Source &source);

  static std::string where(const toml::node &node, const Source &source) {
    if (!source.hasLines)
      return source.name;
    return source.name + ":" + std::to_string(node.source().begin.line);
  }
};

const Key *findKey(const std::string &path) {
  for (const Key &key : keys())
    if (path == key.path)
      return &key;
  return nullptr;
}

// Returns the map that has `path` as an entry, such as "dims.*" for {"dims",
// "batch"}; null if `path` is no entry of a map.
const Key *findMap(const Path &path) {
  if (path.size() < 2)
    return nullptr;
  return findKey(dotted(Path(path.begin(), path.end() - 1)) + ".*");
}

// Returns whether the key table has keys below `path`, so that the file may
// have a table at `path`.
bool isSection(const std::string &path) {
  for (const Key &key : keys())
    if (path.empty() || std::string(key.path).starts_with(path + "."))
      return true;
  return false;
}

/// Returns whether the values of the key name files, which are opened under
/// exactly that name.
bool namesFile(std::string_view key) {
  return key == "data.path" || key == "data.eval_path" ||
         key == "data.bind.*" || key == "target.cluster" ||
         key == "parallel.pipeline.table";
}

/// Escapes the names in a value. They are compared with names from models and
/// .npz archives, which are escaped when they are read. Names of files are not
/// escaped.
void escapeNames(Field field) {
  auto each = [](StringList &names) {
    for (std::string &name : names)
      name = escaped(name);
  };
  if (auto *name = std::get_if<std::string *>(&field))
    **name = escaped(**name);
  else if (auto *names = std::get_if<StringList *>(&field))
    each(**names);
  else if (auto *lists = std::get_if<std::vector<StringList> *>(&field))
    for (StringList &list : **lists)
      each(list);
  else if (auto *map =
               std::get_if<std::map<std::string, std::string> *>(&field))
    for (auto &[entry, value] : **map)
      value = escaped(value);
}

std::optional<ConfigError>
Loader::apply(const Path &path, const toml::node &node, const Source &source) {
  std::string name = dotted(path);
  if (const Key *key = findKey(name); key && !name.ends_with("*"))
    return assign(*key, path, node, source);
  // `data = false` is short for `data = { enabled = false }`.
  if (const Key *key = findKey(name + ".enabled"); key && node.is_boolean())
    return assign(*key, path, node, source);
  if (isSection(name)) {
    if (const toml::table *table = node.as_table())
      return applyTable(path, *table, source);
    return ConfigError{name + " (" + where(node, source) + "): found " +
                       describeNode(node) + "; expected a table of keys"};
  }
  if (const Key *map = findMap(path))
    return assign(*map, path, node, source);
  return unknown(path, node, source);
}

std::optional<ConfigError> Loader::applyTable(const Path &path,
                                              const toml::table &table,
                                              const Source &source) {
  // The entries are applied in the order of the file, so that the first mistake
  // in the file is reported, except that `enabled` is applied last.
  struct Entry {
    std::string name;
    const toml::node *node;
  };
  std::vector<Entry> entries;
  for (auto &&[key, value] : table)
    entries.push_back({std::string(std::string_view(key)), &value});
  std::sort(entries.begin(), entries.end(), [](const Entry &a, const Entry &b) {
    bool lastA = a.name == "enabled", lastB = b.name == "enabled";
    auto position = [](const toml::node *node) {
      return std::pair(node->source().begin.line, node->source().begin.column);
    };
    return lastA != lastB ? lastB : position(a.node) < position(b.node);
  });
  for (const Entry &entry : entries) {
    Path child = path;
    child.push_back(entry.name);
    if (auto error = apply(child, *entry.node, source))
      return error;
  }
  return std::nullopt;
}

std::optional<ConfigError> Loader::assign(const Key &key, const Path &path,
                                          const toml::node &node,
                                          const Source &source) {
  Config &config = loaded.config;
  Field field = key.field(config);
  const std::string entry = escaped(path.back());
  bool good = readNode(node, field, entry, source.raw);
  if (good && !namesFile(key.path))
    escapeNames(field);
  // Some keys accept the values auto, true and false. For these, true and false
  // may be written as booleans, without quotes.
  if (auto *text = std::get_if<std::string *>(&field);
      text && !good && node.is_boolean() &&
      std::string_view(key.values).ends_with("|true|false")) {
    **text = *node.value<bool>() ? "true" : "false";
    good = true;
  }
  std::string name = key.path;
  if (name.ends_with("*"))
    name = entryPath(key, entry);
  if (!good) {
    std::string wrong = wrongEntry(node, field);
    if (wrong.empty())
      wrong = "found " + describeNode(node);
    if (node.is_table() && key.path != name && !name.starts_with("mesh."))
      wrong += "; a name that has dots is quoted: " +
               formatString(path.back() + ".x") + " = ...";
    return ConfigError{name + " (" + where(node, source) + "): " + wrong +
                       "; expected " + typeName(field)};
  }
  loaded.origins[name] = where(node, source);

  // Setting any key of a strategy, such as parallel.tensor.axis, also enables
  // the strategy, unless the key is `enabled` itself.
  size_t dot = name.rfind('.');
  if (dot == std::string::npos || name.ends_with(".enabled"))
    return std::nullopt;
  std::string switchName = name.substr(0, dot) + ".enabled";
  if (const Key *enabled = findKey(switchName)) {
    bool &on = *std::get<bool *>(enabled->field(config));
    if (!on)
      loaded.origins[switchName] = where(node, source);
    on = true;
  }
  return std::nullopt;
}

ConfigError Loader::unknown(const Path &path, const toml::node &node,
                            const Source &source) {
  std::string name = dotted(path);
  std::string last = path.back();
  std::string message = name + " (" + where(node, source) + "): unknown key";

  // The user may have written a name with dots, such as "a.b", without quotes;
  // TOML then reads it as nested tables.
  for (size_t size = 1; size + 1 < path.size(); ++size) {
    std::string map = dotted(Path(path.begin(), path.begin() + size));
    if (map != "mesh" && findKey(map + ".*"))
      return ConfigError{
          message + "; a name that has dots is quoted: --set '" + map + "." +
          formatString(dotted(Path(path.begin() + size, path.end()))) +
          "=...'"};
  }
  // If a key with the same last name exists in another section, the message
  // suggests this key. Otherwise the message suggests the known key that is
  // spelled most similarly.
  std::vector<std::string> known;
  std::optional<std::string> meant;
  for (const Key &key : keys()) {
    std::string candidate = key.path;
    if (candidate.ends_with("*"))
      candidate.resize(candidate.size() - 2);
    known.push_back(candidate);
    for (size_t dot; (dot = candidate.rfind('.')) != std::string::npos;) {
      if (!meant && candidate.substr(dot + 1) == last)
        meant = candidate;
      candidate.resize(dot);
      known.push_back(candidate); // the section may be misspelt, too
    }
  }
  // In the maps `dims` and `mesh`, the user chooses the names of the entries.
  // The names that users choose most often are also suggested.
  for (const char *entry :
       {"dims.batch", "dims.sequence", "mesh.pipeline", "mesh.data",
        "mesh.expert", "mesh.sequence", "mesh.tensor"}) {
    known.push_back(entry);
    if (!meant && path.size() == 1 && name == std::strchr(entry, '.') + 1)
      meant = entry;
  }
  if (const Meaning *meaning = meant ? nullptr : meaningOf(last))
    return ConfigError{message + "; did you mean " + describe(*meaning) + "?"};
  if (!meant) { // it may be another framework's name for a key
    std::string section = name.substr(0, name.size() - last.size());
    std::vector<std::string> all = known;
    for (const Meaning &meaning : meanings())
      all.push_back(section + meaning.name);
    meant = nearest(name, all);
    if (meant && !has(known, *meant))
      return ConfigError{message + "; did you mean " +
                         describe(*meaningOf(meant->substr(section.size()))) +
                         "?"};
  }
  if (!meant)
    return ConfigError{message + "; the nearest known one is '" +
                       *nearest(name, known, /*anyDistance=*/true) +
                       "', and `cleave config` lists all"};
  return ConfigError{message + "; did you mean '" + *meant + "'?"};
}

std::optional<ConfigError> Loader::applyFile(const std::string &text,
                                             const std::string &name) {
  if (std::optional<Mistake> wrong = mistakeIn(text))
    return ConfigError{name + ":" + wrong->text};
  try {
    toml::table table = toml::parse(std::string_view(text), name);
    return apply({}, table, {name, true});
  } catch (const toml::parse_error &error) {
    return ConfigError{name + ":" + std::to_string(error.source().begin.line) +
                       ": not valid TOML: " + std::string(error.description())};
  } catch (const BrokenAssumption &) {
    return ConfigError{name + ": not valid TOML"};
  }
}

std::optional<ConfigError>
Loader::applyOverride(const ConfigOverride &override_) {
  Source source{override_.origin, false, &override_.value};
  const std::string line = "value = " + override_.value;
  for (const std::string &part : {override_.key, line})
    if (std::optional<Mistake> wrong = mistakeIn(part);
        wrong && wrong->isLongKey)
      return ConfigError{override_.origin + ": line " + wrong->text};
  std::string mistake;
  toml::table table = parseLine(line, mistake).value_or(toml::table());
  const std::string &value = override_.value;
  // A number that is too long for 64 bits is an error. It is not used as a
  // string.
  size_t sign = value.find_first_not_of("+-") == 1 ? 1 : 0;
  if (table.empty() && value.size() - sign > 18 &&
      value.find_first_not_of("0123456789", sign) == std::string::npos)
    return ConfigError{override_.key + " (" + override_.origin + "): found " +
                       value + "; expected an integer of 64 bits"};
  // A text that is not exactly one TOML value is used as a string.
  if (table.size() != 1) {
    table.clear();
    table.insert("value", override_.value);
  }
  std::optional<ConfigError> error =
      apply(parsePath(override_.key), *table.get("value"), source);
  // A value that is no valid TOML is used as a string. But if it begins like a
  // list, a table or a quoted string, the user probably meant TOML, so the
  // message also says why it is no valid TOML.
  if (error && !mistake.empty() && value.find_first_of("[{\"'") == 0)
    error->message += "; it is no TOML: " + mistake +
                      (value.find('\\') == std::string::npos
                           ? ""
                           : "; in single quotes a backslash is itself");
  return error;
}

void Loader::settleMesh(const std::string &baseName) {
  MeshConfig &mesh = loaded.config.mesh;
  auto isOfBase = [&](const std::string &key) {
    auto origin = loaded.origins.find("mesh." + key);
    return origin == loaded.origins.end() ||
           origin->second.starts_with(baseName + ":");
  };
  bool isNew = false;
  for (const auto &[name, size] : mesh.sizes)
    isNew |= !isOfBase(name);
  if (!isNew)
    return;
  for (auto &[name, size] : mesh.sizes)
    if (isOfBase(name))
      size = 1;
  // `mesh.axes` is the order of the axes. If the order in the base
  // configuration does not contain all axes of the new mesh, the order is
  // removed and the default order is used.
  auto isListed = [&](const auto &axis) {
    return std::find(mesh.axes.begin(), mesh.axes.end(), axis.first) !=
           mesh.axes.end();
  };
  if (isOfBase("axes") &&
      !std::all_of(mesh.sizes.begin(), mesh.sizes.end(), isListed))
    mesh.axes.clear();
}

std::optional<ConfigError> Loader::check() {
  Config &config = loaded.config;
  for (const Key &key : keys()) {
    auto origin = loaded.origins.find(key.path);
    if (auto error = checkKey(key, config,
                              origin == loaded.origins.end() ? "default"
                                                             : origin->second))
      return error;
  }

  // Checks that involve several keys.
  Config anyRanks = config;
  for (auto &axis : anyRanks.mesh.sizes)
    axis.second = 1;
  if (auto mesh = resolveMesh(anyRanks, std::nullopt); !mesh)
    return ConfigError{mesh.error()}; // reports axes with wrong names or order
  const TargetConfig &target = config.target;
  if (target.transport == "mpi" && target.kind == "cuda")
    return ConfigError{"target.transport = \"mpi\" moves memory of the host, "
                       "and with target.kind = \"cuda\" the data is on "
                       "devices; expected auto, local or nccl"};
  if (target.transport == "nccl" && target.kind == "cpu")
    return ConfigError{"target.transport = \"nccl\" connects devices of "
                       "target.kind = \"cuda\"; with \"cpu\" expected auto, "
                       "local or mpi"};
  if (config.train.precision == "tf32" && target.kind == "cpu")
    return ConfigError{"train.precision = \"tf32\" is a format of the devices "
                       "of target.kind = \"cuda\"; with \"cpu\" expected fp32 "
                       "or bf16"};
  auto batch = config.dims.find("batch");
  if (batch != config.dims.end() &&
      batch->second % config.train.microbatches != 0)
    return ConfigError{"dims.batch = " + std::to_string(batch->second) +
                       " does not divide by train.microbatches = " +
                       std::to_string(config.train.microbatches)};
  if (!config.train.logits.empty() && config.train.loss.starts_with("output:"))
    return ConfigError{"train.logits = " + formatString(config.train.logits) +
                       " and train.loss = " + formatString(config.train.loss) +
                       " both name the output that the loss reads; leave one "
                       "of them out"};
  if (!config.data.tokens.empty() && config.data.tokens == config.data.labels)
    return ConfigError{"data.tokens and data.labels both name the input '" +
                       config.data.tokens +
                       "'; leave data.labels at \"next\", or name the input or "
                       "array of the labels"};
  for (const auto &[name, value] : config.data.bind) {
    std::string key = "data.bind." + formatKey(name);
    std::string other = name == config.data.tokens   ? "data.tokens"
                        : name == config.data.labels ? "data.labels"
                        : loaded.origins.count("data.inputs." + name)
                            ? "data.inputs." + formatKey(name)
                            : "";
    if (!other.empty())
      return ConfigError{key + " (--bind) gives the input '" + name +
                         "' one value, but " + other +
                         " says that it is read from data; leave one of them "
                         "out"};
    config.data.inputs.erase(name); // it was only a default
  }
  for (const auto &[key, name] : {std::pair("data.tokens", config.data.tokens),
                                  std::pair("data.labels", config.data.labels)})
    if (auto fed = config.data.inputs.find(name);
        fed != config.data.inputs.end() &&
        (fed->second == "ones" || fed->second == "zeros" ||
         fed->second == "arange"))
      return ConfigError{"data.inputs." + name + " = " +
                         formatString(fed->second) + ", but " + key +
                         " names this input as one of the data; leave one of "
                         "them out"};
  return std::nullopt;
}

ConfigResult<LoadedConfig> finish(Loader &loader,
                                  const std::vector<ConfigOverride> &overrides,
                                  const std::string &baseName = "") {
  for (const ConfigOverride &override_ : overrides)
    if (auto error = loader.applyOverride(override_))
      return *error;
  if (!baseName.empty())
    loader.settleMesh(baseName);
  if (auto error = loader.check())
    return *error;
  return std::move(loader.loaded);
}

} // namespace

ConfigResult<ConfigOverride> cleave::parseOverride(const std::string &text) {
  size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    return ConfigError{"--set " + text +
                       ": expected KEY=VALUE, e.g. --set mesh.data=4"};
  auto trim = [](std::string part) {
    part.erase(0, part.find_first_not_of(" \t"));
    part.erase(part.find_last_not_of(" \t") + 1);
    return part;
  };
  return ConfigOverride{trim(text.substr(0, equals)),
                        trim(text.substr(equals + 1))};
}

ConfigResult<LoadedConfig> cleave::loadConfig(const ConfigSources &sources) {
  Loader loader;
  if (auto error = loader.applyFile(sources.base, sources.baseName))
    return *error;
  if (!sources.file.empty()) {
    std::string text, reason;
    if (!readInput(sources.file, text, reason))
      return ConfigError{"cannot read the configuration " + sources.file +
                         ": " + reason};
    if (auto error = loader.applyFile(text, sources.file))
      return *error;
  }
  return finish(loader, sources.overrides, sources.baseName);
}

ConfigResult<LoadedConfig>
cleave::loadConfigText(const std::string &text, const std::string &name,
                       const std::vector<ConfigOverride> &overrides) {
  Loader loader;
  if (auto error = loader.applyFile(text, name))
    return *error;
  return finish(loader, overrides);
}
