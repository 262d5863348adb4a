// Escapes text from files before it is shown in messages, tables and logs.
#ifndef CLEAVE_IO_ESCAPE_H
#define CLEAVE_IO_ESCAPE_H

#include <cstdio>
#include <streambuf>
#include <string>
#include <string_view>

namespace cleave {

/// Replaces each character that would move a terminal's cursor, start a new
/// line, or reverse the direction of text by an escape sequence with its
/// hexadecimal code: ASCII control characters and bytes that are not UTF-8 as
/// two digits (for example \x1B), code points beyond ASCII as four (for example
/// \u009B). Other text is unchanged.
std::string escaped(std::string_view text);

/// Like escaped(), but newlines and tabs are kept, for text of several lines.
/// Names must be escaped() before they are inserted into such text.
std::string escapedLines(std::string_view text);

/// printf for a line or a part of a line; the formatted text is escaped().
[[gnu::format(printf, 2, 3)]] void printEscaped(std::FILE *stream,
                                                const char *format, ...);

/// Escapes all text that is written to a stream during the lifetime of this
/// object. The stream must not be used for binary data.
class EscapingStream {
public:
  explicit EscapingStream(std::ostream &stream);
  ~EscapingStream();
  EscapingStream(const EscapingStream &) = delete;
  EscapingStream &operator=(const EscapingStream &) = delete;

private:
  /// Forwards complete UTF-8 characters; an incomplete one is kept until its
  /// remaining bytes arrive.
  class Buffer : public std::streambuf {
  public:
    explicit Buffer(std::streambuf *inner) : inner(inner) {}
    std::streambuf *const inner;

  protected:
    int_type overflow(int_type c) override;
    std::streamsize xsputn(const char *text, std::streamsize size) override;
    int sync() override;

  private:
    bool pass(std::string_view text);
    std::string rest;
  };

  std::ostream &stream;
  Buffer buffer;
};

} // namespace cleave

#endif // CLEAVE_IO_ESCAPE_H
