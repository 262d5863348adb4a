// Patterns of names, in one dialect for every key that takes them:
// ECMAScript's regular expressions, as JavaScript and std::regex have them,
// without back-references.

#ifndef CLEAVE_IO_PATTERN_H
#define CLEAVE_IO_PATTERN_H

#include <string>
#include <string_view>

namespace cleave {

/// What is wrong with a pattern, at which character (counted from 1), and what
/// to write instead; "" where it is one.
std::string checkPattern(std::string_view pattern);

/// Whether the pattern matches the whole name. What checkPattern refuses
/// matches nothing.
bool matchesPattern(std::string_view pattern, std::string_view name);

/// Whether it matches the whole of a path with dots, or its beginning up to one
/// of them: "h.1" matches "h.1.attn", not "h.11".
bool matchesPathPattern(std::string_view pattern, std::string_view path);

/// The pattern that matches this name alone.
std::string escapePattern(std::string_view name);

/// That pattern as a string of a configuration, for messages: "a\\.b".
std::string quotedPattern(std::string_view name);

} // namespace cleave

#endif // CLEAVE_IO_PATTERN_H
