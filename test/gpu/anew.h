// The rest of a program's work in a process of its own: a fault on the device
// leaves nothing to the one that met it.
#ifndef CLEAVE_TEST_GPU_ANEW_H
#define CLEAVE_TEST_GPU_ANEW_H

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

namespace cleave::gpu {

// The exit code of this program with these words, its name first; 3 where it
// cannot be started, or does not exit with 0 to 3.
inline int runAnew(std::vector<std::string> words) {
  std::vector<char *> args;
  for (std::string &word : words)
    args.push_back(word.data());
  args.push_back(nullptr);
  pid_t child = 0;
  int status = 0;
  if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, args.data(),
                  environ) != 0 ||
      waitpid(child, &status, 0) != child || !WIFEXITED(status))
    return 3;
  return std::min(WEXITSTATUS(status), 3);
}

} // namespace cleave::gpu

#endif // CLEAVE_TEST_GPU_ANEW_H
