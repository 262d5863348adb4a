// Messages about patterns of parameter names in the configuration.

#include "cleave/Interfaces/MatchNames.h"

#include "cleave/Dialect/NN/IR/Ports.h"
#include "cleave/io/Pattern.h"

using namespace mlir;
using namespace cleave;

/// The pattern without its regular-expression operators.
static std::string lettersOf(StringRef pattern) {
  std::string letters;
  for (char c : pattern)
    if (!StringRef(".*+?^$()[]|\\").contains(c))
      letters += c;
  return letters;
}

std::string cleave::describeNoMatch(StringRef pattern,
                                    ArrayRef<DictionaryAttr> parameters,
                                    StringRef rule) {
  std::string message =
      (" matches none of the " + Twine(parameters.size()) + " parameters: ")
          .str();
  for (DictionaryAttr attrs : parameters)
    for (StringRef alias : nn::tiedNamesOf(attrs))
      if (matchesPattern(pattern, alias))
        return (message + "'" + alias + "' is tied to '" + nn::nameOf(attrs) +
                "', which names both")
            .str();
  for (DictionaryAttr attrs : parameters.take_front(3))
    message += ("'" + nn::nameOf(attrs) + "', ").str();
  if (parameters.size() > 3)
    message += "...";
  else
    message.resize(message.size() - 2);
  message += ("; " + rule).str();
  // A name that differs in more than half of the letters is no helpful
  // suggestion.
  std::string wanted = lettersOf(pattern);
  StringRef best;
  unsigned bestDistance = 0;
  for (DictionaryAttr attrs : parameters) {
    StringRef name = nn::nameOf(attrs);
    std::string letters = lettersOf(name);
    bool part = wanted.size() > 2 && StringRef(letters).contains(wanted);
    unsigned distance = part ? 0 : StringRef(letters).edit_distance(wanted);
    if (!part && 2 * distance > std::max(letters.size(), wanted.size()))
      continue;
    if (best.empty() || distance < bestDistance) {
      best = name;
      bestDistance = distance;
    }
  }
  if (!best.empty())
    message += ("; the nearest is '" + best + "'").str();
  return message;
}
