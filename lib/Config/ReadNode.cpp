// Reads TOML values into the fields of a Config, with one conversion for each
// type of field.

#include "ReadNode.h"

#include <algorithm>

using namespace cleave;
using namespace cleave::config;

std::string config::describeNode(const toml::node &node) {
  if (auto *text = node.as_string())
    return "the string " + formatString(text->get());
  if (auto *number = node.as_integer())
    return "the integer " + std::to_string(number->get());
  if (auto *number = node.as_floating_point()) {
    double value = number->get();
    return "the number " + formatValue(Field(&value));
  }
  if (auto *flag = node.as_boolean())
    return flag->get() ? "true" : "false";
  if (node.is_array())
    return "a list";
  if (node.is_table())
    return "a table";
  return "a date or time";
}

namespace {

// Each of these functions reads a TOML node into a field. It returns false if
// the field cannot have the node's type.
bool read(const toml::node &node, bool &out) {
  auto value = node.as_boolean();
  if (value)
    out = value->get();
  return value;
}

bool read(const toml::node &node, int64_t &out) {
  auto value = node.as_integer();
  if (value)
    out = value->get();
  return value;
}

bool read(const toml::node &node, double &out) {
  if (auto value = node.as_floating_point())
    out = value->get();
  else if (auto value = node.as_integer())
    out = double(value->get());
  else
    return false;
  return true;
}

bool read(const toml::node &node, std::string &out) {
  auto value = node.as_string();
  if (value)
    out = value->get();
  return value;
}

bool read(const toml::node &node, SequenceParallelConfig &out);
bool read(const toml::node &node, ShardConfig &out);

template <typename T> bool read(const toml::node &node, std::vector<T> &out) {
  const toml::array *list = node.as_array();
  if (!list)
    return false;
  out.clear();
  for (const toml::node &entry : *list)
    if (!read(entry, out.emplace_back()))
      return false;
  return true;
}

bool read(const toml::node &node, SequenceParallelConfig &out) {
  const toml::table *table = node.as_table();
  if (!table)
    return false;
  for (auto &&[key, value] : *table) {
    std::string_view name = key;
    bool good = name == "kind"          ? read(value, out.kind)
                : name == "axis"        ? read(value, out.axis)
                : name == "saved_input" ? read(value, out.savedInput)
                : name == "plan"        ? read(value, out.plan)
                : name == "order"       ? read(value, out.order)
                                        : false;
    if (!good)
      return false;
  }
  return true;
}

// If the user gave a list of names such as `dims = ["x", ""]`, returns a hint
// for the error message with the right form, in which each dimension has a list
// of axes: [["x"], []].
std::string dimsMeant(const toml::node &node) {
  const toml::array *list = node.as_array();
  if (!list || list->empty() || !list->is_homogeneous<std::string>())
    return "";
  std::string found, meant;
  for (const toml::node &entry : *list) {
    std::string axis = entry.value_or(std::string());
    const char *comma = found.empty() ? "" : ", ";
    found += comma + formatString(axis);
    meant += comma + ("[" + (axis.empty() ? "" : formatString(axis)) + "]");
  }
  return " of names, [" + found + "]; each dimension has a list of axes, [" +
         meant + "]";
}

bool read(const toml::node &node, ShardConfig &out) {
  const toml::table *table = node.as_table();
  if (!table)
    return false;
  for (auto &&[key, value] : *table) {
    std::string_view name = key;
    bool good = name == "match"  ? read(value, out.match)
                : name == "dims" ? read(value, out.dims)
                : name == "view" ? read(value, out.view)
                                 : false;
    if (!good)
      return false;
  }
  return true;
}

template <typename T>
std::string wrongEntryOf(const toml::node &node,
                         std::vector<std::string> names) {
  const toml::array *list = node.as_array();
  for (size_t i = 0; list && i < list->size(); ++i) {
    const toml::node &entry = *list->get(i);
    std::string at = "entry " + std::to_string(i + 1) + ": ";
    const toml::table *table = entry.as_table();
    if (!table)
      return at + "found " + describeNode(entry);
    for (auto &&[key, value] : *table) {
      std::string name(key.str());
      if (std::find(names.begin(), names.end(), name) == names.end())
        return at + "unknown key '" + name + "'; did you mean '" +
               *nearest(name, names, true) + "'?";
      T one;
      toml::table alone;
      alone.insert(key, value);
      if (!read(alone, one))
        return at + "`" + name + "`: found " + describeNode(value) +
               (name == "dims" ? dimsMeant(value) : "");
    }
  }
  return "";
}

} // namespace

bool config::readNode(const toml::node &node, Field field,
                      const std::string &entry, const std::string *raw) {
  return std::visit(
      [&](auto *target) {
        using T = std::remove_pointer_t<decltype(target)>;
        if constexpr (requires { typename T::mapped_type; }) {
          typename T::mapped_type value;
          bool fits = read(node, value);
          if (fits)
            (*target)[entry] = value;
          return fits;
        } else {
          T value;
          bool fits = read(node, value);
          // For --set data.path=2024, TOML reads the value as a number. If the
          // key is a string, the text of the value is used instead.
          if constexpr (std::is_same_v<T, std::string>)
            if (!fits && raw && !node.is_table() && !node.is_array()) {
              value = *raw;
              fits = true;
            }
          if (fits)
            *target = value;
          return fits;
        }
      },
      field);
}

std::string config::wrongEntry(const toml::node &node, Field field) {
  if (std::holds_alternative<std::vector<ShardConfig> *>(field))
    return wrongEntryOf<ShardConfig>(node, {"match", "dims", "view"});
  if (std::holds_alternative<std::vector<SequenceParallelConfig> *>(field))
    return wrongEntryOf<SequenceParallelConfig>(
        node, {"kind", "axis", "saved_input", "plan", "order"});
  return "";
}
