// A recursive-descent parser for formulas.

#include "Expression.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>

namespace cleave::pipeline::test {

namespace {

class Parser {
public:
  Parser(const std::string &text, const std::map<char, double> &variables)
      : variables(variables) {
    for (char c : text)
      if (!std::isspace(static_cast<unsigned char>(c)))
        rest += c;
  }

  double whole() {
    double value = conjunction();
    EXPECT_TRUE(rest.empty()) << "left over in a formula: " << rest;
    return value;
  }

private:
  bool take(const std::string &token) {
    if (rest.compare(0, token.size(), token))
      return false;
    rest.erase(0, token.size());
    return true;
  }

  double conjunction() {
    double value = comparison();
    while (take("&"))
      value = (comparison() != 0) && (value != 0);
    return value;
  }

  double comparison() {
    double value = sum();
    if (take("=="))
      return value == sum();
    if (take("<="))
      return value <= sum();
    if (take(">="))
      return value >= sum();
    return value;
  }

  double sum() {
    double value = product();
    while (true) {
      if (take("+"))
        value += product();
      else if (take("-"))
        value -= product();
      else
        return value;
    }
  }

  double product() {
    double value = factor();
    while (true) {
      if (take("*"))
        value *= factor();
      else if (take("/"))
        value /= factor();
      else if (take("%"))
        value = std::fmod(value, factor());
      else
        return value;
    }
  }

  double factor() {
    bool least = take("min("), most = !least && take("max(");
    if (least || most) {
      double a = sum();
      EXPECT_TRUE(take(";"));
      double b = sum();
      EXPECT_TRUE(take(")"));
      return least ? std::min(a, b) : std::max(a, b);
    }
    if (take("(")) {
      double value = sum();
      EXPECT_TRUE(take(")"));
      return value;
    }
    if (rest.empty() || !std::isalnum(static_cast<unsigned char>(rest[0]))) {
      ADD_FAILURE() << "no value in a formula at: " << rest;
      rest.clear();
      return 0;
    }
    if (std::isalpha(static_cast<unsigned char>(rest[0]))) {
      double value = variables.at(rest[0]);
      rest.erase(0, 1);
      return value;
    }
    char *end;
    double value = std::strtod(rest.c_str(), &end);
    rest.erase(0, end - rest.c_str());
    return value;
  }

  std::string rest;
  const std::map<char, double> &variables;
};

} // namespace

double evaluate(const std::string &text,
                const std::map<char, double> &variables) {
  return Parser(text, variables).whole();
}

} // namespace cleave::pipeline::test
