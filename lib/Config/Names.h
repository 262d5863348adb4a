// Formats lists of names, such as axes and keys.

#ifndef CLEAVE_LIB_CONFIG_NAMES_H
#define CLEAVE_LIB_CONFIG_NAMES_H

#include <algorithm>
#include <string>
#include <vector>

namespace cleave::config {

inline bool contains(const std::vector<std::string> &names,
                     const std::string &name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// `a, b, c`.
inline std::string join(const std::vector<std::string> &names) {
  std::string text;
  for (const std::string &name : names)
    text += (text.empty() ? "" : ", ") + name;
  return text;
}

} // namespace cleave::config

#endif // CLEAVE_LIB_CONFIG_NAMES_H
