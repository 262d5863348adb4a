// Generates docs/configuration.md from the table of keys.

#include "cleave/Config/KeyNames.h"
#include "cleave/Config/Load.h"

#include "Keys.h"

#include <algorithm>
#include <map>

using namespace cleave;
using namespace cleave::config;

namespace {

// Escapes bars in the text of a table cell, since a bar would end the cell.
std::string cell(const std::string &text) {
  std::string result;
  for (char c : text) {
    if (c == '|')
      result += '\\';
    result += c;
  }
  return result;
}

std::string code(const std::string &text) {
  return text.empty() ? "" : "`" + cell(text) + "`";
}

// Returns the type without its article: "a number" -> "number".
std::string typeCell(Field field) {
  std::string name = typeName(field);
  for (const char *article : {"a ", "an "})
    if (name.starts_with(article))
      return cell(name.substr(std::string(article).size()));
  return cell(name);
}

// Returns the default of a key. The default of a map consists of the entries
// that it has if the user sets none.
std::string defaultCell(const Key &key, Field field) {
  std::string value = formatValue(field);
  if (std::string(key.path).ends_with("*") && value == "{  }")
    return "none";
  return code(value);
}

// Returns the text of the column "allowed" for a key: "a|b|c", with a note on
// values that are not supported yet. If the key has no fixed list of values,
// the text says what its value must be, for example "at least 1".
std::string allowedCell(const Key &key) {
  std::string text, values = key.values, served = "|";
  served += std::string(*key.served ? key.served : key.values) + "|";
  for (size_t begin = 0; !values.empty() && begin <= values.size();) {
    size_t end = std::min(values.find('|', begin), values.size());
    std::string value = values.substr(begin, end - begin);
    text += text.empty() ? "" : ", ";
    text += value.empty() ? "`\"\"`" : code(value);
    if (served.find("|" + value + "|") == std::string::npos)
      text += " (not yet supported)";
    begin = end + 1;
  }
  return text.empty() && key.check ? cell(key.check->allowed) : text;
}

const char *head =
    "# Configuration\n"
    "\n"
    "This page lists every key of `--config FILE` and of `--set KEY=VALUE`: "
    "its type, its default, the allowed values, its\n"
    "meaning, and the commands that use it. `cleave config` prints the value "
    "of every key and where the value comes from.\n"
    "In keys with `*`, you choose the name: `mesh.data = 2`, `dims.batch = "
    "8`.\n"
    "\n"
    "`compile` writes the keys that training uses into the program, for "
    "`cleave-run`. Patterns are regular expressions\n"
    "(ECMAScript).\n";

const std::map<std::string, const char *> titles = {
    {"mesh", "the ranks"},
    {"dims", "sizes that the model leaves open"},
    {"data", "the training data"},
    {"train", "the training"},
    {"parallel", "strategies; a strategy is enabled if the mesh has its axis"},
    {"shard", "shardings of single tensors"},
    {"target", "the machine"},
    {"import", "limits of the import"}};

// Returns the table that lists, for each key, its names in other trainers.
std::string otherNames() {
  std::string text =
      "\n## What other trainers call them\n\n"
      "The names in the column `elsewhere` are not accepted as keys or flags. "
      "If one of them is given, the error message says\n"
      "which key to use instead: the one in the column `here`.\n\n"
      "| here | elsewhere |\n|---|---|\n";
  std::map<std::string, std::string> byKey;
  for (const Meaning &meaning : meanings()) {
    std::string &names = byKey[meaning.key];
    names += (names.empty() ? "" : ", ") + code(meaning.name);
    if (*meaning.note)
      names += std::string(" (") + cell(meaning.note) + ")";
  }
  for (const auto &[key, names] : byKey)
    text += "| " + code(key) + " | " + names + " |\n";
  return text;
}

} // namespace

std::vector<std::string> cleave::keyNames() {
  std::vector<std::string> names;
  for (const Key &key : keys())
    names.push_back(entryPath(key, ""));
  return names;
}

std::string cleave::describeKeys() {
  std::string text = head, section;
  Config defaults;
  for (const Key &key : keys()) {
    std::string path = key.path, top = path.substr(0, path.find('.'));
    if (top != section) {
      section = top;
      auto title = titles.find(top);
      text += "\n## `" +
              std::string(top == "shard" ? "[[shard]]" : "[" + top + "]") +
              "`" +
              (title == titles.end() ? "" : std::string(": ") + title->second) +
              "\n\n| key | type | default | allowed | meaning | used by |\n"
              "|---|---|---|---|---|---|\n";
    }
    Field field = key.field(defaults);
    text += "| " + code(path) + " | " + typeCell(field) + " | " +
            defaultCell(key, field) + " | " + allowedCell(key) + " | " +
            cell(key.help) + " | " + key.users.commands + " |\n";
  }
  return text + otherNames();
}
