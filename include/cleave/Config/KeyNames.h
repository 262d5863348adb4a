// The names of keys, for what completes a command line.

#ifndef CLEAVE_CONFIG_KEYNAMES_H
#define CLEAVE_CONFIG_KEYNAMES_H

#include <string>
#include <vector>

namespace cleave {

// "train.lr"; of a map what stands before the user's name, "mesh.".
std::vector<std::string> keyNames();

} // namespace cleave

#endif // CLEAVE_CONFIG_KEYNAMES_H
