// JSON as text.
#ifndef CLEAVE_IO_JSONTEXT_H
#define CLEAVE_IO_JSONTEXT_H

#include <string>

namespace cleave {

/// A nlohmann document on one line, or indented. Paths may hold bytes that are
/// no UTF-8, which JSON has no way to say: they become U+FFFD.
template <class Json> std::string jsonText(const Json &json, int indent = -1) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false,
                   Json::error_handler_t::replace);
}

} // namespace cleave

#endif // CLEAVE_IO_JSONTEXT_H
