// Limits the nesting depth of JSON. The parser accepts any depth, but recursive
// functions on its result need stack for each level.
#ifndef CLEAVE_IO_NESTING_H
#define CLEAVE_IO_NESTING_H

#include <cstdint>
#include <string_view>

namespace cleave {

/// No JSON file of this project is nested deeper.
inline constexpr int64_t mostNesting = 64;

/// Returns whether more than mostNesting brackets outside of strings are open
/// at some point of the text. The text need not be valid JSON.
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
