// cleave config: lists every key with its value, the origin of the value, and
// one line of help.

#include "commands/Commands.h"

#include <iostream>
#include <memory>

using namespace cleave;
using namespace cleave::driver;

std::function<int()> driver::addConfig(CLI::App &app) {
  struct Options : CommonOptions {
    bool reference = false;
  };
  auto options = std::make_shared<Options>();
  addConfigFlags(app, *options);
  addRanksFlag(app, *options);
  app.add_flag("--reference", options->reference,
               "print what every key means, as a page of Markdown, instead");
  return [options] {
    if (options->reference) {
      std::cout << describeKeys();
      return Success;
    }
    LoadedConfig loaded = loadConfigOrFail(*options);
    // The mesh is validated only if the number of ranks is known; its sizes are
    // shown as they were given.
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
