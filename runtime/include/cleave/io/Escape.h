// Text of files, as messages, tables and logs may show it.
#ifndef CLEAVE_IO_ESCAPE_H
#define CLEAVE_IO_ESCAPE_H

#include <cstdio>
#include <streambuf>
#include <string>
#include <string_view>

namespace cleave {

/// What would move a terminal's cursor, begin a line of its own or turn the
/// order of text around, written out: control characters and bytes that are no
/// UTF-8 as \x1B, those beyond ASCII as \u009B. Other text stays as it is.
std::string escaped(std::string_view text);

/// As escaped(), but for lines and tabs, which our own text has. Names are
/// escaped() before they become part of it.
std::string escapedLines(std::string_view text);

/// printf of a line or a part of one, which is shown escaped().
[[gnu::format(printf, 2, 3)]] void printEscaped(std::FILE *stream,
                                                const char *format, ...);

/// Escapes what is written to a stream while it lives; binary data does not
/// belong there.
class EscapingStream {
public:
  explicit EscapingStream(std::ostream &stream);
  ~EscapingStream();
  EscapingStream(const EscapingStream &) = delete;
  EscapingStream &operator=(const EscapingStream &) = delete;

private:
  /// Passes on whole characters; a cut one waits for the rest.
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
