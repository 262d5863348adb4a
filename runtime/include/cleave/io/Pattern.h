// Name patterns. All keys that take patterns use one dialect: ECMAScript
// regular expressions, as in JavaScript and std::regex, without
// back-references.

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

/// The pattern that matches this name alone.
std::string escapePattern(std::string_view name);

/// A pattern that matches exactly `name`, quoted as a string of the
/// configuration, for messages: "a\\.b".
std::string quotedPattern(std::string_view name);

} // namespace cleave

#endif // CLEAVE_IO_PATTERN_H
