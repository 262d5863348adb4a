// Includes toml++ 3.3. Its parser assumes in some places what it has not
// checked (for "[.x]", "[}]"). In release builds these assertions would be
// promises to the compiler; here a failed assertion throws an exception.

#ifndef CLEAVE_LIB_CONFIG_TOML_H
#define CLEAVE_LIB_CONFIG_TOML_H

#include <stdexcept>

namespace cleave::config {

// The exception of a failed assertion in toml++. Unlike toml::parse_error, it
// has no line.
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
