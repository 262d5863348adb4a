// Scans TOML text, mainly its keys, for mistakes that the TOML parser must not
// see (see KeyScan.h).

#include "KeyScan.h"

#include <algorithm>
#include <cstdint>

using namespace cleave;
using namespace cleave::config;

namespace {

constexpr int64_t mostParts = 64;

// Returns the position after the end of the string that begins at `at`, which
// may be a multi-line string.
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

class Scan {
public:
  explicit Scan(std::string_view toml) : toml(toml) {}

  std::optional<Mistake> run() {
    if (toml.starts_with("\xef\xbb\xbf"))
      at = 3;
    while (at < toml.size()) {
      const char c = toml[at];
      if ((c == '"' || c == '\'') && mayBeginString()) {
        skip(endOfString(toml, at));
      } else if (c == '#') {
        skip(std::min(toml.find('\n', at), toml.size()));
      } else {
        if (static_cast<unsigned char>(c) >= 0x80)
          return Mistake{where() + "not valid TOML: a character beyond ASCII "
                                   "outside of quotes",
                         false};
        take(c);
        if (parts > mostParts)
          return Mistake{where() + "a key of more than " +
                             std::to_string(mostParts) +
                             " parts; no key has so many",
                         true};
      }
    }
    return std::nullopt;
  }

private:
  // In TOML, a string begins after white space or one of the characters = [ , {
  // . and at no other place. A quote elsewhere, as in 5'000 or don't, is a
  // mistake that the parser reports. The scan must not treat the text after
  // such a quote as a string and skip it. (\xbf ends a byte order mark.)
  bool mayBeginString() const {
    return at == 0 || std::string_view(" \t\r\n=[,{.\xbf").find(toml[at - 1]) !=
                          std::string_view::npos;
  }

  std::string where() const { return std::to_string(line) + ": "; }

  void skip(size_t end) {
    for (; at < end; ++at)
      line += toml[at] == '\n';
  }

  void take(char c) {
    if (c == '.')
      ++parts;
    else if (c == '\n' || c == ',' || c == '=' || c == '[' || c == '{')
      parts = 1;
    line += c == '\n';
    ++at;
  }

  std::string_view toml;
  size_t at = 0;
  int64_t line = 1, parts = 1;
};

} // namespace

std::optional<Mistake> config::mistakeIn(std::string_view toml) {
  return Scan(toml).run();
}
