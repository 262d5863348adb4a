// Formats values of the configuration as TOML, and names their types for
// messages.

#include "Keys.h"

#include <charconv>

using namespace cleave;
using namespace cleave::config;

namespace {

std::string formatDouble(double value) {
  char buffer[64];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  std::string text(buffer, end);
  size_t e = text.find('e');
  if (e == std::string::npos)
    return text.find_first_of(".n") == std::string::npos ? text + ".0" : text;
  // 3e-04 -> 3e-4
  size_t digits = e + 2;
  while (digits + 1 < text.size() && text[digits] == '0')
    text.erase(digits, 1);
  return text;
}

template <typename T, typename F>
std::string formatList(const std::vector<T> &values, F format) {
  std::string text;
  for (const T &value : values)
    text += (text.empty() ? "" : ", ") + format(value);
  return "[" + text + "]";
}

std::string formatStrings(const StringList &values) {
  return formatList(values, formatString);
}

struct Formatter {
  std::string operator()(bool *v) { return *v ? "true" : "false"; }
  std::string operator()(int64_t *v) { return std::to_string(*v); }
  std::string operator()(double *v) { return formatDouble(*v); }
  std::string operator()(std::string *v) { return formatString(*v); }
  std::string operator()(StringList *v) { return formatStrings(*v); }
  std::string operator()(std::vector<double> *v) {
    return formatList(*v, formatDouble);
  }
  std::string operator()(std::vector<StringList> *v) {
    return formatList(*v, formatStrings);
  }
  std::string operator()(std::vector<SequenceParallelConfig> *v) {
    return formatList(*v, [](const SequenceParallelConfig &entry) {
      std::string policies =
          entry.kind == "ring"
              ? ", plan = " + formatString(entry.plan) +
                    ", order = " + formatString(entry.order)
              : ", saved_input = " + formatString(entry.savedInput);
      return "{ kind = " + formatString(entry.kind) +
             ", axis = " + formatString(entry.axis) + policies + " }";
    });
  }
  std::string operator()(std::vector<ShardConfig> *v) {
    return formatList(*v, [](const ShardConfig &entry) {
      std::string text = "{ match = " + formatString(entry.match) +
                         ", dims = " + formatList(entry.dims, formatStrings);
      if (!entry.view.empty())
        text += ", view = " + formatList(entry.view, [](int64_t size) {
                  return std::to_string(size);
                });
      return text + " }";
    });
  }
  std::string operator()(std::map<std::string, int64_t> *v) {
    std::string text;
    for (auto &[name, value] : *v)
      text += (text.empty() ? "" : ", ") + formatKey(name) + " = " +
              std::to_string(value);
    return "{ " + text + " }";
  }
  std::string operator()(std::map<std::string, std::string> *v) {
    std::string text;
    for (auto &[name, value] : *v)
      text += (text.empty() ? "" : ", ") + formatKey(name) + " = " +
              formatString(value);
    return "{ " + text + " }";
  }
};

struct TypeNamer {
  const char *operator()(bool *) { return "true or false"; }
  const char *operator()(int64_t *) { return "an integer"; }
  const char *operator()(double *) { return "a number"; }
  const char *operator()(std::string *) { return "a string"; }
  const char *operator()(StringList *) { return "a list of strings"; }
  const char *operator()(std::vector<double> *) { return "a list of numbers"; }
  const char *operator()(std::vector<StringList> *) {
    return "a list of lists of strings";
  }
  const char *operator()(std::vector<SequenceParallelConfig> *) {
    return "a list of tables { kind = \"megatron\" | \"ulysses\" | \"ring\", "
           "axis = \"AXIS\" }, with saved_input (megatron), plan and order "
           "(ring)";
  }
  const char *operator()(std::vector<ShardConfig> *) {
    return "a list of tables { match = \"REGEX\", dims = [[\"AXIS\", ...], "
           "...], view = [SIZE, ...] }";
  }
  const char *operator()(std::map<std::string, int64_t> *) {
    return "an integer";
  }
  const char *operator()(std::map<std::string, std::string> *) {
    return "a string";
  }
};

} // namespace

std::string config::typeName(Field field) {
  return std::visit(TypeNamer(), field);
}

std::string config::formatValue(Field field) {
  return std::visit(Formatter(), field);
}

std::string config::formatString(const std::string &value) {
  static const char *hex = "0123456789ABCDEF";
  std::string text = "\"";
  for (unsigned char c : value) {
    if (c == '"' || c == '\\')
      (text += '\\') += char(c);
    else if (c == '\n')
      text += "\\n";
    else if (c == '\t')
      text += "\\t";
    else if (c < 0x20 || c == 0x7f)
      ((text += "\\u00") += hex[c >> 4]) += hex[c & 15];
    else
      text += char(c);
  }
  return text + "\"";
}

std::string config::formatKey(const std::string &name) {
  bool bare = !name.empty();
  for (char c : name)
    bare = bare && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                    (c >= '0' && c <= '9') || c == '_' || c == '-');
  return bare ? name : formatString(name);
}

std::string config::entryPath(const Key &key, const std::string &entry) {
  std::string path = key.path;
  if (path.ends_with("*"))
    return path.substr(0, path.size() - 1) + entry;
  return path;
}
