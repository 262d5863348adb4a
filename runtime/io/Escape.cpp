#include "cleave/io/Escape.h"

#include <cstdarg>
#include <cstdint>
#include <ostream>
#include <vector>

namespace cleave {

namespace {
/// One UTF-8 character (well-formed as in table 3-7 of the Unicode standard),
/// or one byte that does not begin a character.
struct Character {
  size_t size = 1;
  uint32_t code = 0;
  bool isValid = true;
  bool isCut = false; ///< the text ends inside the character
};
} // namespace

static Character firstOf(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  Character c;
  c.code = byte(0);
  if (c.code < 0x80)
    return c;
  c.size = c.code >= 0xf0 ? 4 : c.code >= 0xe0 ? 3 : 2;
  static constexpr uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  c.isValid = c.code >= 0xc2 && c.code <= 0xf4;
  c.code &= 0x7f >> c.size;
  for (size_t i = 1; c.isValid && i < c.size; ++i) {
    if (i == text.size()) {
      c.isCut = true;
      c.isValid = false;
    } else if ((byte(i) & 0xc0) != 0x80) {
      c.isValid = false;
    } else {
      c.code = c.code << 6 | (byte(i) & 0x3f);
    }
  }
  bool isSurrogate = c.code >= 0xd800 && c.code < 0xe000;
  if (!c.isValid || c.code < least[c.size] || c.code > 0x10ffff || isSurrogate)
    return {1, byte(0), false, c.isCut};
  return c;
}

/// Returns whether a character is a control character, a line separator, or a
/// character that changes the order of text (Unicode annex 9, section 2).
static bool isControl(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) ||
         (code >= 0x2028 && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069) || code == 0x200e ||
         code == 0x200f || code == 0x061c || code == 0xfeff;
}

/// Escapes `text`. If `rest` is not null, an incomplete character at the end of
/// the text is moved to it.
static std::string escape(std::string_view text, bool keepsLines,
                          std::string *rest) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    Character c = firstOf(text);
    if (c.isCut && rest) {
      *rest = text;
      break;
    }
    char code[12];
    if (c.isValid && (!isControl(c.code) ||
                      (keepsLines && (c.code == '\n' || c.code == '\t')))) {
      result += text.substr(0, c.size);
    } else {
      bool isByte = !c.isValid || c.code < 0x80;
      std::snprintf(code, sizeof code, isByte ? "\\x%02X" : "\\u%04X", c.code);
      result += code;
    }
    text.remove_prefix(c.size);
  }
  return result;
}

std::string escaped(std::string_view text) {
  return escape(text, /*keepsLines=*/false, nullptr);
}

std::string escapedLines(std::string_view text) {
  return escape(text, /*keepsLines=*/true, nullptr);
}

void printEscaped(std::FILE *stream, const char *format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  int size = std::vsnprintf(nullptr, 0, format, arguments);
  va_end(arguments);
  std::vector<char> text(size < 0 ? 1 : size + 1);
  std::vsnprintf(text.data(), text.size(), format, again);
  va_end(again);
  std::string_view line(text.data(), text.size() - 1);
  const bool ends = line.ends_with('\n');
  line.remove_suffix(ends);
  std::string shown = escaped(line) + (ends ? "\n" : "");
  std::fwrite(shown.data(), 1, shown.size(), stream);
}

//===----------------------------------------------------------------------===//
// Streams
//===----------------------------------------------------------------------===//

EscapingStream::EscapingStream(std::ostream &stream)
    : stream(stream), buffer(stream.rdbuf()) {
  stream.rdbuf(&buffer);
}

EscapingStream::~EscapingStream() {
  stream.flush();
  stream.rdbuf(buffer.inner);
}

bool EscapingStream::Buffer::pass(std::string_view text) {
  std::string whole = rest + std::string(text);
  rest.clear();
  std::string shown = escape(whole, /*keepsLines=*/true, &rest);
  auto size = static_cast<std::streamsize>(shown.size());
  return inner->sputn(shown.data(), size) == size;
}

EscapingStream::Buffer::int_type EscapingStream::Buffer::overflow(int_type c) {
  if (traits_type::eq_int_type(c, traits_type::eof()))
    return traits_type::not_eof(c);
  char byte = traits_type::to_char_type(c);
  return pass({&byte, 1}) ? c : traits_type::eof();
}

std::streamsize EscapingStream::Buffer::xsputn(const char *text,
                                               std::streamsize size) {
  return pass({text, static_cast<size_t>(size)}) ? size : 0;
}

int EscapingStream::Buffer::sync() {
  // A flush ends a message, so an incomplete character at the end of the
  // message is escaped.
  std::string shown = escapedLines(rest);
  rest.clear();
  auto size = static_cast<std::streamsize>(shown.size());
  bool isWhole = inner->sputn(shown.data(), size) == size;
  return inner->pubsync() == 0 && isWhole ? 0 : -1;
}

} // namespace cleave
