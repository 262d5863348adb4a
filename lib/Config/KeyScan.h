// Scans TOML text before it is parsed.

#ifndef CLEAVE_LIB_CONFIG_KEYSCAN_H
#define CLEAVE_LIB_CONFIG_KEYSCAN_H

#include <optional>
#include <string>
#include <string_view>

namespace cleave::config {

struct Mistake {
  std::string text; // "LINE: ..."
  bool isLongKey;
};

// Returns the first mistake in a text (which need not be valid TOML) that the
// TOML parser must not see; nullopt if there is none. There are two kinds of
// such mistakes. A key with more parts than any valid key could overflow the
// stack of recursive functions. A non-ASCII character outside of strings and
// comments could make toml++ 3.3 reach code that it declares unreachable.
std::optional<Mistake> mistakeIn(std::string_view toml);

} // namespace cleave::config

#endif // CLEAVE_LIB_CONFIG_KEYSCAN_H
