// Suggests the name that the user may have meant by a misspelt one.

#ifndef CLEAVE_IO_SUGGEST_H
#define CLEAVE_IO_SUGGEST_H

#include <optional>
#include <string>
#include <vector>

namespace cleave {

/// Returns the candidate nearest to `name` by edit distance. Returns nullopt if
/// all candidates are too far away to be meant; with `anyDistance`, only if
/// there is no candidate.
std::optional<std::string> nearest(const std::string &name,
                                   const std::vector<std::string> &candidates,
                                   bool anyDistance = false);

} // namespace cleave

#endif // CLEAVE_IO_SUGGEST_H
