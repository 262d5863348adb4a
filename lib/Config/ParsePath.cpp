// Parses TOML of one line.

#include "ParsePath.h"

#include "KeyScan.h"

#include <sstream>

using namespace cleave;
using namespace cleave::config;

std::optional<toml::table> config::parseLine(const std::string &line,
                                             std::string &mistake) {
  if (std::optional<Mistake> wrong = mistakeIn(line)) {
    mistake = wrong->text.substr(wrong->text.find(": ") + 2);
    return std::nullopt;
  }
  try {
    return toml::parse(std::string_view(line));
  } catch (const toml::parse_error &error) {
    mistake = error.description();
  } catch (const BrokenAssumption &) {
    mistake = "it cannot be read";
  }
  return std::nullopt;
}

Path config::parsePath(const std::string &text) {
  std::string mistake;
  if (auto table = parseLine(text + " = 0", mistake)) {
    Path path;
    const toml::node *node = &*table;
    while (auto *inner = node->as_table()) {
      if (inner->size() != 1)
        break;
      path.emplace_back(std::string_view(inner->begin()->first));
      node = &inner->begin()->second;
    }
    if (node->is_integer())
      return path;
  }
  // A text that is no TOML key, such as dims.s0+s1, is split at every dot.
  Path path;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, '.');)
    path.push_back(part);
  return path;
}
