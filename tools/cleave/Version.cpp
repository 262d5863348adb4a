// What `cleave --version` prints. The commit changes more often than anything
// else, so it is compiled into this file alone.

#include "Command.h"

#include "commit.h"

std::string cleave::driver::versionText() {
  std::string commit = CLEAVE_COMMIT;
  return "cleave " CLEAVE_VERSION + (commit.empty() ? "" : " (" + commit + ")");
}
