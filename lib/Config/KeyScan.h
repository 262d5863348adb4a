// Looks at TOML before it is parsed.

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

// Of the first key that has more parts than any key of ours (whoever walks its
// tables would run out of stack), or of the first character beyond ASCII that
// is in no string and no comment (toml++ 3.3 calls some of them unreachable).
// Any text is taken.
std::optional<Mistake> mistakeIn(std::string_view toml);

} // namespace cleave::config

#endif // CLEAVE_LIB_CONFIG_KEYSCAN_H
