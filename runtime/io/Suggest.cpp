// "did you mean": finds the nearest known name by edit distance. A name that is
// a prefix of a known name counts like one wrong letter.

#include "cleave/io/Suggest.h"

#include <algorithm>
#include <cstddef>

namespace {

// Returns the number of insertions, deletions, substitutions and swaps of
// adjacent letters that turn `a` into `b`.
size_t editDistance(const std::string &a, const std::string &b) {
  std::vector<std::vector<size_t>> d(a.size() + 1,
                                     std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i)
    d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j)
    d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t substitute = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, substitute});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

} // namespace

std::optional<std::string>
cleave::nearest(const std::string &name,
                const std::vector<std::string> &candidates, bool anyDistance) {
  std::optional<std::string> best;
  size_t bestDistance = 0;
  for (const std::string &candidate : candidates) {
    size_t distance = editDistance(name, candidate);
    // If `name` is a prefix of the candidate, the distance is 1, or 2 if the
    // prefix is short.
    if (candidate.starts_with(name) &&
        (name.size() >= 3 || name.size() * 2 > candidate.size()))
      distance = std::min<size_t>(distance,
                                  name.size() * 2 > candidate.size() ? 1 : 2);
    if (!best || distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  // If more than half of the letters differ, a suggestion would mislead.
  if (best && !anyDistance &&
      bestDistance * 2 > std::max(name.size(), best->size()))
    return std::nullopt;
  return best;
}
