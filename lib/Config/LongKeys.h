// Keys of so many parts that whoever walks their tables runs out of stack.

#ifndef CLEAVE_LIB_CONFIG_LONGKEYS_H
#define CLEAVE_LIB_CONFIG_LONGKEYS_H

#include <optional>
#include <string>
#include <string_view>

namespace cleave::config {

// "LINE: a key of N parts, ..." of the first key of TOML text that has more
// parts than any key of ours. Any text is taken.
std::optional<std::string> longKeyIn(std::string_view toml);

} // namespace cleave::config

#endif // CLEAVE_LIB_CONFIG_LONGKEYS_H
