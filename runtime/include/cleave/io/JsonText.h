// Writes JSON documents as text.
#ifndef CLEAVE_IO_JSONTEXT_H
#define CLEAVE_IO_JSONTEXT_H

#include <string>

namespace cleave {

/// Writes a nlohmann document on one line, or indented. Bytes that are not
/// UTF-8 (paths may contain them) become U+FFFD, as JSON cannot represent them.
template <class Json> std::string jsonText(const Json &json, int indent = -1) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false,
                   Json::error_handler_t::replace);
}

} // namespace cleave

#endif // CLEAVE_IO_JSONTEXT_H
