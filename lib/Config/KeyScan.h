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

// Returns the first mistake in any text. A mistake is a key with more parts
// than any valid key, for which functions that recurse into its tables would
// overflow the stack, or a character beyond ASCII outside of strings and
// comments, for which toml++ 3.3 may reach code that it declares unreachable.
std::optional<Mistake> mistakeIn(std::string_view toml);

} // namespace cleave::config

#endif // CLEAVE_LIB_CONFIG_KEYSCAN_H
