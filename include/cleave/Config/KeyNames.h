// The names of configuration keys, for shell completion.

#ifndef CLEAVE_CONFIG_KEYNAMES_H
#define CLEAVE_CONFIG_KEYNAMES_H

#include <string>
#include <vector>

namespace cleave {

// Returns all keys, such as "train.lr". For a map with names chosen by the
// user, returns the part before the name, such as "mesh.".
std::vector<std::string> keyNames();

} // namespace cleave

#endif // CLEAVE_CONFIG_KEYNAMES_H
