// Counts the parts of TOML keys before they are parsed.

#include "LongKeys.h"

#include <cstdint>

namespace {

constexpr int64_t mostParts = 64;

// Where the string at `at`, of one line or of several, has ended.
size_t endOfString(std::string_view toml, size_t at) {
  const char quote = toml[at];
  const std::string_view three(quote == '"' ? "\"\"\"" : "'''");
  const bool isLong = toml.substr(at, 3) == three;
  const std::string_view end = isLong ? three : three.substr(0, 1);
  for (at += end.size(); at < toml.size(); ++at) {
    if (toml[at] == '\\' && quote == '"')
      ++at;
    else if (toml.substr(at, end.size()) == end)
      return at + end.size();
    else if (toml[at] == '\n' && !isLong)
      return at;
  }
  return toml.size();
}

} // namespace

std::optional<std::string> cleave::config::longKeyIn(std::string_view toml) {
  int64_t line = 1, parts = 1;
  for (size_t at = 0; at < toml.size();) {
    switch (toml[at]) {
    case '"':
    case '\'': {
      size_t end = endOfString(toml, at);
      for (; at < end; ++at)
        line += toml[at] == '\n';
      continue;
    }
    case '#':
      while (at < toml.size() && toml[at] != '\n')
        ++at;
      continue;
    case '.':
      ++parts;
      break;
    case '\n':
      ++line;
      [[fallthrough]];
    case ',':
    case '=':
    case '[':
    case '{':
      parts = 1;
      break;
    default:
      break;
    }
    if (parts > mostParts)
      return std::to_string(line) + ": a key of more than " +
             std::to_string(mostParts) + " parts; no key has so many";
    ++at;
  }
  return std::nullopt;
}
