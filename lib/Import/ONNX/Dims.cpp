// Expressions in the names of symbolic dimensions: sums and products of names
// and numbers, with floor division and parentheses.

#include "Dims.h"

#include "cleave/Import/ONNX/Import.h"

#include "llvm/ADT/StringExtras.h"

using llvm::StringRef;

namespace cleave::importer {

namespace {
class Parser {
public:
  Parser(StringRef text, const Bindings &bindings, std::string &unbound)
      : rest(text), bindings(bindings), unbound(unbound) {}

  std::optional<int64_t> all() {
    std::optional<int64_t> value = sum(0);
    skip();
    return rest.empty() ? value : std::nullopt;
  }

private:
  void skip() { rest = rest.ltrim(); }
  bool eat(StringRef token) {
    skip();
    return rest.consume_front(token);
  }

  std::optional<int64_t> sum(unsigned depth) {
    std::optional<int64_t> value = term(depth);
    while (value) {
      bool plus = eat("+");
      if (!plus && !eat("-"))
        break;
      std::optional<int64_t> next = term(depth);
      if (!next)
        return next;
      value = plus ? *value + *next : *value - *next;
    }
    return value;
  }

  std::optional<int64_t> term(unsigned depth) {
    std::optional<int64_t> value = factor(depth);
    while (value) {
      bool divide = eat("//");
      if (!divide && !eat("*"))
        break;
      std::optional<int64_t> next = factor(depth);
      if (!next || (divide && *next == 0))
        return std::nullopt;
      value = divide ? *value / *next : *value * *next;
    }
    return value;
  }

  std::optional<int64_t> factor(unsigned depth) {
    if (depth > 32)
      return std::nullopt;
    if (eat("(")) {
      std::optional<int64_t> value = sum(depth + 1);
      return eat(")") ? value : std::nullopt;
    }
    skip();
    StringRef word = rest.take_while([](char c) {
      return llvm::isAlnum(c) || c == '_' || c == '.' || c == ':';
    });
    if (word.empty())
      return std::nullopt;
    rest = rest.drop_front(word.size());
    int64_t number;
    if (!word.getAsInteger(10, number))
      return number;
    auto it = bindings.find(word.str());
    if (it != bindings.end())
      return it->second;
    if (unbound.empty())
      unbound = word.str();
    return std::nullopt;
  }

  StringRef rest;
  const Bindings &bindings;
  std::string &unbound;
};
} // namespace

std::optional<int64_t> evaluateDim(StringRef expression,
                                   const Bindings &bindings,
                                   std::string &unbound) {
  unbound.clear();
  auto it = bindings.find(expression.str());
  if (it != bindings.end())
    return it->second;
  if (isDimensionName(expression)) {
    unbound = expression.str();
    return std::nullopt;
  }
  if (std::optional<int64_t> value =
          Parser(expression, bindings, unbound).all())
    return value;
  // `unbound` is the name for which a value is missing. If the text is no valid
  // expression, it is reported as a single name.
  if (unbound.empty() || !expression.contains_insensitive(unbound))
    unbound = expression.str();
  return std::nullopt;
}

std::string dimKey(StringRef name) {
  bool isBare = !name.empty() && llvm::all_of(name, [](char c) {
    return llvm::isAlnum(c) || c == '_' || c == '-';
  });
  if (isBare)
    return ("dims." + name).str();
  std::string text = "dims.\"";
  for (char c : name) {
    if (c == '"' || c == '\\')
      text += '\\';
    text += c;
  }
  return text + "\"";
}

} // namespace cleave::importer

// A "-" may be a part of a name: exporters write spaces around the operators of
// expressions.
bool cleave::isDimensionName(StringRef text) {
  return !text.empty() && text != "?" && !llvm::all_of(text, llvm::isDigit) &&
         text.find_first_of(" +*/()") == StringRef::npos;
}
