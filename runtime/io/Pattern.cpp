// The only file that uses regular expressions. Before std::regex sees a
// pattern, this file refuses what would surprise users: std::regex accepts some
// mistakes silently, and describes others badly.

#include "cleave/io/Pattern.h"

#include <cctype>
#include <cstdlib>
#include <map>
#include <optional>
#include <regex>
#include <vector>

namespace cleave {

namespace {

constexpr std::string_view special = "^$\\.*+?()[]{}|";

bool isDigit(char c) { return c >= '0' && c <= '9'; }
bool isLetter(char c) { return std::isalpha(static_cast<unsigned char>(c)); }

/// Converts a shell pattern to a regular expression: "*.bias" to ".*\.bias".
/// Returns "" if it contains something that shell patterns do not have.
std::string fromGlob(std::string_view glob) {
  std::string text;
  for (char c : glob)
    if (c == '*')
      text += ".*";
    else if (c == '?')
      text += '.';
    else if (c == '.')
      text += "\\.";
    else if (special.find(c) == std::string_view::npos)
      text += c;
    else
      return "";
  return text;
}

/// Finds the first mistake of a pattern.
class Scanner {
public:
  explicit Scanner(std::string_view text) : text(text) {}

  /// Returns a description of the mistake; "" if there is none.
  std::string run() {
    while (at < text.size() && mistake.empty())
      step();
    if (mistake.empty() && !open.empty())
      wrong(open.back(), "`(` is not closed; write `\\(` for the character");
    return mistake;
  }

private:
  enum class Last { Nothing, Atom, Repetition, Lazy };

  char peek(size_t ahead = 1) const {
    return at + ahead < text.size() ? text[at + ahead] : '\0';
  }

  void wrong(size_t where, const std::string &what) {
    mistake = "at character " + std::to_string(where + 1) + ", " + what;
  }

  void step() {
    switch (text[at]) {
    case '\\':
      return escape(/*inClass=*/false);
    case '[':
      return characterClass();
    case '(':
      return openGroup();
    case ')':
      if (open.empty())
        return wrong(at, "`)` closes nothing; write `\\)` for the character");
      open.pop_back();
      return advance(1, Last::Atom);
    case '*':
    case '+':
    case '?':
      return repeat(1);
    case '{':
      return count();
    case '|':
    case '^':
    case '$':
      return advance(1, Last::Nothing);
    default:
      return advance(1, Last::Atom);
    }
  }

  void advance(size_t by, Last now) {
    at += by;
    last = now;
  }

  void repeat(size_t length) {
    std::string sign(text.substr(at, length));
    if (last == Last::Repetition && sign == "?")
      return advance(1, Last::Lazy);
    if (last == Last::Atom)
      return advance(length, Last::Repetition);
    if (last != Last::Nothing)
      return wrong(at, "`" + sign +
                           "` repeats a repetition; put that in (?:…) if it "
                           "is meant");
    std::string meant = fromGlob(text);
    wrong(at, "`" + sign + "` repeats nothing; write '" +
                  (meant.empty() ? "." + sign : meant) + "'");
  }

  /// Scans a count: {2}, {2,} or {2,4}.
  void count() {
    size_t end = at + 1;
    auto number = [&] {
      long value = 0;
      size_t begin = end;
      while (end < text.size() && isDigit(text[end]) && end - begin < 6)
        value = 10 * value + (text[end++] - '0');
      return end > begin ? value : -1;
    };
    long low = number(), high = low;
    if (low >= 0 && end < text.size() && text[end] == ',') {
      ++end;
      high = number();
    }
    if (low < 0 || end >= text.size() || text[end] != '}')
      return wrong(at, "`{` begins a count such as {2} or {1,3}; write `\\{` "
                       "for the character");
    if (high >= 0 && high < low)
      return wrong(at, "`" + std::string(text.substr(at, end + 1 - at)) +
                           "` counts down");
    repeat(end + 1 - at);
  }

  void openGroup() {
    size_t begin = at;
    bool isPlain = peek() != '?';
    if (!isPlain && peek(2) != ':' && peek(2) != '=' && peek(2) != '!')
      return wrong(at, "`" + std::string(text.substr(at, 3)) +
                           "` is no group of ECMAScript, which has (…), "
                           "(?:…), (?=…) and (?!…)");
    open.push_back(begin);
    advance(isPlain ? 1 : 3, Last::Nothing);
  }

  void escape(bool inClass) {
    char c = peek();
    std::string both(text.substr(at, 2));
    auto hex = [&](size_t digits) {
      std::string code(text.substr(std::min(at + 2, text.size()), digits));
      for (char digit : code)
        if (!std::isxdigit(static_cast<unsigned char>(digit)))
          return false;
      // `\x` and `\u` may only stand for ASCII characters: names are UTF-8, in
      // which other characters have several bytes.
      return code.size() == digits &&
             std::strtol(code.c_str(), nullptr, 16) < 128;
    };
    if (at + 1 >= text.size())
      return wrong(at, "`\\` escapes nothing; write `\\\\` for the character");
    if (isDigit(c) && (c != '0' || isDigit(peek(2))))
      return wrong(at, "`" + both +
                           "` is a back-reference, which patterns of "
                           "names do not have");
    if (c == 'x' || c == 'u') {
      size_t digits = c == 'x' ? 2 : 4;
      if (!hex(digits))
        return wrong(at, "`" + both + "` wants " + std::to_string(digits) +
                             " hexadecimal digits of an ASCII character; write "
                             "others as they are");
      return advance(2 + digits, Last::Atom);
    }
    if (c == 'c') {
      if (!isLetter(peek(2)))
        return wrong(at, "`\\c` wants a letter");
      return advance(3, Last::Atom);
    }
    if (c == 'b' || (c == 'B' && !inClass))
      return advance(2, inClass ? Last::Atom : Last::Nothing);
    if (isLetter(c) &&
        std::string_view("dDsSwWfnrtv").find(c) == std::string_view::npos)
      return wrong(
          at, "`" + both + "` means nothing in ECMAScript" +
                  (std::string_view("AzZG").find(c) != std::string_view::npos
                       ? "; patterns match whole names anyway"
                       : ""));
    advance(2, Last::Atom);
  }

  void characterClass() {
    size_t begin = at++;
    if (at < text.size() && text[at] == '^')
      ++at;
    while (at < text.size() && text[at] != ']') {
      if (text[at] == '\\') {
        escape(/*inClass=*/true);
        if (!mistake.empty())
          return;
        continue;
      }
      char kind = peek(); // of classes such as [[:alpha:]]
      if (text[at] == '[' && (kind == ':' || kind == '.' || kind == '=')) {
        size_t end = text.find(std::string{kind, ']'}, at + 2);
        if (end == std::string_view::npos)
          break;
        at = end + 2;
        continue;
      }
      if (peek() == '-' && isPlain(text[at]) && isPlain(peek(2)) &&
          static_cast<unsigned char>(peek(2)) <
              static_cast<unsigned char>(text[at]))
        return wrong(at, "the range `" + std::string(text.substr(at, 3)) +
                             "` ends before it begins");
      ++at;
    }
    if (at >= text.size())
      return wrong(begin, "`[` is not closed; write `\\[` for the character");
    advance(1, Last::Atom);
  }

  static bool isPlain(char c) { return c != '\0' && c != '\\' && c != ']'; }

  std::string_view text;
  size_t at = 0;
  Last last = Last::Nothing;
  std::vector<size_t> open; // positions at which open groups begin
  std::string mistake;
};

std::regex compile(std::string_view pattern) {
  auto flags = std::regex::ECMAScript;
#ifdef __GLIBCXX__
  // With this flag, libstdc++ matches in polynomial time and without deep
  // recursion. Otherwise untrusted names could cause either.
  flags |= std::regex_constants::__polynomial;
#endif
  return std::regex(pattern.begin(), pattern.end(), flags);
}

const std::regex *compiled(std::string_view pattern) {
  // A few patterns are matched with thousands of names, so they are cached.
  thread_local std::map<std::string, std::optional<std::regex>, std::less<>>
      known;
  auto found = known.find(pattern);
  if (found == known.end()) {
    found = known.emplace(pattern, std::nullopt).first;
    if (checkPattern(pattern).empty())
      found->second = compile(pattern);
  }
  return found->second ? &*found->second : nullptr;
}

bool matches(const std::regex &regex, std::string_view name) {
  return std::regex_match(name.begin(), name.end(), regex);
}

} // namespace

std::string checkPattern(std::string_view pattern) {
  std::string mistake = Scanner(pattern).run();
  if (!mistake.empty())
    return mistake;
  try {
    compile(pattern);
    return "";
  } catch (const std::regex_error &error) {
    return error.what();
  }
}

bool matchesPattern(std::string_view pattern, std::string_view name) {
  const std::regex *regex = compiled(pattern);
  return regex && matches(*regex, name);
}

bool matchesPathPattern(std::string_view pattern, std::string_view path) {
  const std::regex *regex = compiled(pattern);
  if (!regex)
    return false;
  for (size_t dot = path.find('.'); dot != std::string_view::npos;
       dot = path.find('.', dot + 1))
    if (matches(*regex, path.substr(0, dot)))
      return true;
  return matches(*regex, path);
}

std::string escapePattern(std::string_view name) {
  std::string text;
  for (char c : name) {
    if (special.find(c) != std::string_view::npos)
      text += '\\';
    text += c;
  }
  return text;
}

std::string quotedPattern(std::string_view name) {
  std::string text = "\"";
  for (char c : escapePattern(name)) {
    if (c == '\\' || c == '"')
      text += '\\';
    text += c;
  }
  return text + '"';
}

} // namespace cleave
