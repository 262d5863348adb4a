// "did you mean": what a misspelt name may stand for.

#ifndef CLEAVE_IO_SUGGEST_H
#define CLEAVE_IO_SUGGEST_H

#include <optional>
#include <string>
#include <vector>

namespace cleave {

/// The candidate nearest to `name` by edit distance; none when all are too far
/// away to be meant, or, with `anyDistance`, when there is none.
std::optional<std::string> nearest(const std::string &name,
                                   const std::vector<std::string> &candidates,
                                   bool anyDistance = false);

} // namespace cleave

#endif // CLEAVE_IO_SUGGEST_H
