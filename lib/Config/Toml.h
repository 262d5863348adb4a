// Includes toml++ 3.3. For some invalid texts, such as "[.x]" or "[}]",
// assertions in its parser fail. In release builds, toml++ would tell the
// compiler to assume that they hold. Here, a failed assertion throws an
// exception instead.

#ifndef CLEAVE_LIB_CONFIG_TOML_H
#define CLEAVE_LIB_CONFIG_TOML_H

#include <stdexcept>

namespace cleave::config {

// The exception of a failed assertion in toml++. Unlike toml::parse_error, it
// does not say in which line of the text.
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
