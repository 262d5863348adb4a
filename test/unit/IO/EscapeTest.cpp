#include "cleave/io/Escape.h"

#include <gtest/gtest.h>

#include <sstream>

using namespace cleave;

namespace {

TEST(Escape, WhatIsShownStays) {
  for (std::string text :
       {"", "a b", "h.0/attn\\x1B", "\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80"})
    EXPECT_EQ(escaped(text), text);
}

TEST(Escape, WhatMovesATerminal) {
  EXPECT_EQ(escaped("a\x1b[31m\n\t\x7f"), "a\\x1B[31m\\x0A\\x09\\x7F");
  EXPECT_EQ(escapedLines("a\x1b\n\tb"), "a\\x1B\n\tb");
  EXPECT_EQ(escaped(std::string("a\0b", 3)), "a\\x00b");
  // U+009B, U+2028 and U+202E.
  EXPECT_EQ(escaped("\xc2\x9b|\xe2\x80\xa8|\xe2\x80\xae"),
            "\\u009B|\\u2028|\\u202E");
}

TEST(Escape, BytesThatAreNoText) {
  // Bytes that are not valid UTF-8: no lead byte, a truncated character, an
  // overlong encoding, a surrogate, and a code point beyond Unicode.
  EXPECT_EQ(escaped("\xff|\x80|\xc3"), "\\xFF|\\x80|\\xC3");
  EXPECT_EQ(escaped("\xe2\x82|"), "\\xE2\\x82|");
  EXPECT_EQ(escaped("\xc0\xaf"), "\\xC0\\xAF");
  EXPECT_EQ(escaped("\xed\xa0\x80"), "\\xED\\xA0\\x80");
  EXPECT_EQ(escaped("\xf4\x90\x80\x80"), "\\xF4\\x90\\x80\\x80");
}

TEST(Escape, Twice) {
  std::string once = escaped("\x1b\xff");
  EXPECT_EQ(escaped(once), once);
}

TEST(Escape, Streams) {
  std::ostringstream stream;
  {
    EscapingStream shown(stream);
    stream << "a\x1b" << 1 << '\n';
    // The bytes of a character may come in two writes. A truncated character is
    // escaped when the stream ends.
    stream << "\xc3" << "\xbc" << "\xe2\x82";
    EXPECT_EQ(stream.str(), "a\\x1B1\n\xc3\xbc");
  }
  stream << '\x1b';
  EXPECT_EQ(stream.str(), "a\\x1B1\n\xc3\xbc\\xE2\\x82\x1b");
}

} // namespace
