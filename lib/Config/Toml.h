// toml++, whose parser takes for granted in places what nobody has looked at
// ("[.x]", "[}]"; version 3.3). In release builds these are promises to the
// compiler. Here they are refusals.

#ifndef CLEAVE_LIB_CONFIG_TOML_H
#define CLEAVE_LIB_CONFIG_TOML_H

#include <stdexcept>

namespace cleave::config {

// Thrown beside toml::parse_error; has no line.
struct BrokenAssumption : std::runtime_error {
  BrokenAssumption() : std::runtime_error("") {}
};

inline void require(bool holds) {
  if (!holds)
    throw BrokenAssumption();
}

} // namespace cleave::config

#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(...) ::cleave::config::require(bool(__VA_ARGS__))
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

#endif // CLEAVE_LIB_CONFIG_TOML_H
