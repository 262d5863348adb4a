// Writes a Config as TOML: for a run folder, and for `cleave config`.

#include "cleave/Config/Load.h"

#include "Keys.h"

#include <algorithm>

using namespace cleave;
using namespace cleave::config;

namespace {

struct Row {
  std::string section; // "train"; empty for a top-level key
  std::string key;     // below the section, as TOML
  std::string value;   // as TOML; "": map without entries
  std::string origin;
  std::string help;
};

std::vector<Row> rows(Config &config,
                      const std::map<std::string, std::string> &origins) {
  std::vector<Row> result;
  auto add = [&](const std::string &path, const std::string &lastPart,
                 const std::string &value, const Key &key) {
    auto origin = origins.find(path);
    Row row{"", "", value, origin == origins.end() ? "default" : origin->second,
            key.help};
    // The keys of the table need no quotes in TOML, but the name of an entry of
    // a map, which the user chose, may need them.
    std::string written = path;
    if (!lastPart.empty())
      written =
          path.substr(0, path.size() - lastPart.size()) + formatKey(lastPart);
    size_t dot = std::string(key.path).find('.');
    if (dot == std::string::npos) {
      row.key = written;
    } else {
      row.section = written.substr(0, dot);
      row.key = written.substr(dot + 1);
    }
    result.push_back(std::move(row));
  };

  for (const Key &key : keys()) {
    Field field = key.field(config);
    if (auto *map = std::get_if<std::map<std::string, int64_t> *>(&field)) {
      for (auto &[name, value] : **map)
        add(entryPath(key, name), name, std::to_string(value), key);
      if ((*map)->empty())
        add(entryPath(key, "NAME"), "", "", key);
    } else if (auto *map =
                   std::get_if<std::map<std::string, std::string> *>(&field)) {
      for (auto &[name, value] : **map)
        add(entryPath(key, name), name, formatString(value), key);
      if ((*map)->empty())
        add(entryPath(key, "NAME"), "", "", key);
    } else {
      add(key.path, "", formatValue(field), key);
    }
  }
  // In TOML, keys without a section must come before all sections.
  std::vector<Row> ordered;
  for (bool top : {true, false})
    for (const Row &row : result)
      if (row.section.empty() == top)
        ordered.push_back(row);
  return ordered;
}

std::string padded(const std::string &text, size_t width) {
  return text.size() < width ? text + std::string(width - text.size(), ' ')
                             : text;
}

} // namespace

std::string cleave::writeConfig(const Config &config) {
  Config copy = config; // fields are pointers to non-const
  std::string text, section;
  for (const Row &row : rows(copy, {})) {
    if (row.section != section) {
      text += "\n[" + row.section + "]\n";
      section = row.section;
    }
    if (!row.value.empty())
      text += row.key + " = " + row.value + "\n";
  }
  return text;
}

std::string cleave::describeConfig(const LoadedConfig &loaded) {
  Config copy = loaded.config;
  std::vector<Row> all = rows(copy, loaded.origins);
  std::vector<std::string> lines;
  size_t width = 0, originWidth = 0;
  for (const Row &row : all) {
    std::string name =
        row.section.empty() ? row.key : row.section + "." + row.key;
    lines.push_back(row.value.empty() ? "# " + name : name + " = " + row.value);
    width = std::max(width, std::min<size_t>(lines.back().size(), 44));
    originWidth = std::max(originWidth, row.origin.size());
  }
  std::string text;
  for (size_t i = 0; i < all.size(); ++i)
    text += padded(lines[i], width) + "  # " +
            padded(all[i].origin, originWidth) + "  " + all[i].help + "\n";
  return text;
}
