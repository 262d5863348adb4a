// The commands of the driver, in the order in which --help lists them. A new
// command is a file here, a line in the list and a line in CMakeLists.txt.

#ifndef CLEAVE_TOOLS_COMMANDS_H
#define CLEAVE_TOOLS_COMMANDS_H

#include "Command.h"

namespace cleave::driver {

std::function<int()> addConfig(CLI::App &app);

inline const Command commands[] = {
    {"config", "Show every key, its value and where it came from", addConfig},
};

} // namespace cleave::driver

#endif // CLEAVE_TOOLS_COMMANDS_H
