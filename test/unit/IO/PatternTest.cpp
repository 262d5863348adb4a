// Name patterns: which names they match, and the errors for malformed patterns.

#include "cleave/io/Pattern.h"

#include <gtest/gtest.h>

#include <string>

using namespace cleave;

TEST(Pattern, MatchesWholeNames) {
  struct {
    const char *pattern, *name;
    bool matches;
  } const cases[] = {
      {".*", "", true},
      {"h.0", "h.0", true},
      {"h.0", "h.00", false},
      {"a|b", "b", true},
      {"a|ab", "ab", true},
      {R"(h\.\d+\.w)", "h.12.w", true},
      {R"(h\.\d+\.w)", "h.x.w", false},
      {R"(h[.]\w+[.](?:w|b))", "h.attn_1.b", true},
      {R"((?!.*head).*weight)", "h.weight", true},
      {R"((?!.*head).*weight)", "head.weight", false},
      {R"(.*\.(?=w)\w)", "h.w", true},
      {R"(h\.(0|1){2,3})", "h.010", true},
      {R"(h\.(0|1){2,3})", "h.0", false},
      {R"(.*?w)", "ww", true},
      {R"(\x41\s[[:digit:]]+)", "A 12", true},
      {R"(a\/b\-c)", "a/b-c", true},
      {R"([^.]*)", "a.b", false},
      {R"(^w$)", "w", true},
      {"größe", "größe", true},
      {"*.w", "x.w", false}, // malformed
  };
  for (const auto &each : cases)
    EXPECT_EQ(matchesPattern(each.pattern, each.name), each.matches)
        << each.pattern << " of " << each.name;
}

TEST(Pattern, MatchesPathsFromTheirBeginning) {
  EXPECT_TRUE(matchesPathPattern("h.1", "h.1.attn"));
  EXPECT_TRUE(matchesPathPattern("h.1", "h.1"));
  EXPECT_FALSE(matchesPathPattern("h.1", "h.11.attn"));
  EXPECT_TRUE(matchesPathPattern(R"(h\.(\d|1\d))", "h.11.attn"));
  EXPECT_FALSE(matchesPathPattern("attn", "h.1.attn"));
  EXPECT_FALSE(matchesPathPattern("(", "(.a"));
}

TEST(Pattern, SaysWhatIsWrongAndWhere) {
  struct {
    const char *pattern, *said;
  } const cases[] = {
      {"*.weight",
       R"(at character 1, `*` repeats nothing; write '.*\.weight')"},
      {"h.*|?", "at character 5, `?` repeats nothing"},
      {"h.(*)", "at character 4, `*` repeats nothing; write '.*'"},
      {"^*a", "at character 2, `*` repeats nothing"},
      {"a*+", "at character 3, `+` repeats a repetition"},
      {"a{2}{3}", "at character 5, `{3}` repeats a repetition"},
      {"a{2,1}", "at character 2, `{2,1}` counts down"},
      {"a{", R"(at character 2, `{` begins a count)"},
      {"{x}", R"(at character 1, `{` begins a count)"},
      {"h.(a|b", R"(at character 3, `(` is not closed; write `\()"},
      {"h.a)", R"(at character 4, `)` closes nothing; write `\)`)"},
      {"h[ab", R"(at character 2, `[` is not closed; write `\[`)"},
      {"h[b-a]", "at character 3, the range `b-a` ends before it begins"},
      {"h\\", R"(at character 2, `\` escapes nothing)"},
      {R"(\Ah\Z)", R"(at character 1, `\A` means nothing in ECMAScript; )"
                   "patterns match whole names anyway"},
      {R"(\p{L})", R"(at character 1, `\p` means nothing in ECMAScript)"},
      {R"((a)\1)", R"(at character 4, `\1` is a back-reference)"},
      {R"(\u00e9)", R"(at character 1, `\u` wants 4 hexadecimal digits)"},
      {R"(\x4)", R"(at character 1, `\x` wants 2 hexadecimal digits)"},
      {"(?i)head", "at character 1, `(?i` is no group of ECMAScript"},
      {"a(?<n>b)", "at character 2, `(?<` is no group of ECMAScript"},
      {"a(?", "at character 2, `(?` is no group of ECMAScript"},
  };
  for (const auto &each : cases)
    EXPECT_EQ(checkPattern(each.pattern).find(each.said), 0u)
        << each.pattern << ": " << checkPattern(each.pattern);
  for (const char *right : {"", ".*", R"(\d+(?:a|b)?\b)", "a]b}", "[]a]",
                            R"([\d\-x.])", R"(\cA\0\t)", "a*?", "a{2}?"})
    EXPECT_EQ(checkPattern(right), "") << right;
  EXPECT_NO_THROW(checkPattern("(a{9999}){9999}"));
}

TEST(Pattern, LongNamesNeedNeitherTimeNorStack) {
  std::string name(50000, 'a');
  EXPECT_FALSE(matchesPattern("(a*)*b", name));
  EXPECT_TRUE(matchesPattern("(?:a|a)*", name));
}

TEST(Pattern, EscapedNamesMatchThemselvesAlone) {
  std::string name = "a.b[0]*(c)|{1}^$\\+?";
  EXPECT_EQ(checkPattern(escapePattern(name)), "");
  EXPECT_TRUE(matchesPattern(escapePattern(name), name));
  EXPECT_FALSE(matchesPattern(escapePattern("a.b"), "axb"));
}
