// How deep JSON nests. Parsers take any depth, but what walks their result goes
// as deep with the stack.
#ifndef CLEAVE_IO_NESTING_H
#define CLEAVE_IO_NESTING_H

#include <cstdint>
#include <string_view>

namespace cleave {

/// No file of ours nests deeper.
inline constexpr int64_t mostNesting = 64;

/// Whether brackets outside of strings are open more than mostNesting deep at
/// some place. Any text is taken.
inline bool nestsTooDeep(std::string_view json) {
  int64_t depth = 0;
  for (size_t i = 0; i < json.size(); ++i) {
    switch (json[i]) {
    case '"':
      for (++i; i < json.size() && json[i] != '"'; ++i)
        i += json[i] == '\\';
      break;
    case '[':
    case '{':
      if (++depth > mostNesting)
        return true;
      break;
    case ']':
    case '}':
      --depth;
      break;
    default:
      break;
    }
  }
  return false;
}

} // namespace cleave

#endif // CLEAVE_IO_NESTING_H
