// cleave config: every key, its value, where it came from, one line of help.

#include "commands/Commands.h"

#include <iostream>
#include <memory>

using namespace cleave;
using namespace cleave::driver;

std::function<int()> driver::addConfig(CLI::App &app) {
  auto options = std::make_shared<CommonOptions>();
  addConfigFlags(app, *options);
  addRanksFlag(app, *options);
  return [options] {
    LoadedConfig loaded = loadConfigOrFail(*options);
    // The mesh is checked where its rank count is known; its sizes are shown as
    // they were given.
    Config resolved = loaded.config;
    bool open = false;
    for (const auto &axis : resolved.mesh.sizes)
      open |= axis.second == -1;
    if (!open || rankCount(*options))
      resolveMeshOrFail(resolved, *options);
    std::cout << describeConfig(loaded);
    return Success;
  };
}
