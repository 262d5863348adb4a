// Patterns for names. All configuration keys that take patterns use the same
// syntax: ECMAScript regular expressions, as in JavaScript and std::regex,
// without back-references.

#ifndef CLEAVE_IO_PATTERN_H
#define CLEAVE_IO_PATTERN_H

#include <string>
#include <string_view>

namespace cleave {

/// Describes the error in a pattern: the character (counted from 1), and what
/// to write instead. Empty if the pattern is valid.
std::string checkPattern(std::string_view pattern);

/// Returns whether the pattern matches the entire name. An invalid pattern
/// matches nothing.
bool matchesPattern(std::string_view pattern, std::string_view name);

/// Returns whether the pattern matches an entire dotted path, or a prefix of it
/// that ends before a dot: "h.1" matches "h.1.attn", but not "h.11".
bool matchesPathPattern(std::string_view pattern, std::string_view path);

/// Returns the pattern that matches only this name.
std::string escapePattern(std::string_view name);

/// Returns a pattern that matches only `name`, for messages. It is quoted as a
/// string of the configuration: "a\\.b" for the name a.b.
std::string quotedPattern(std::string_view name);

} // namespace cleave

#endif // CLEAVE_IO_PATTERN_H
