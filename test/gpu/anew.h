// Runs the rest of a program's work in a new process. After a fault on the
// device, the process that met the fault can no longer use the device.
#ifndef CLEAVE_TEST_GPU_ANEW_H
#define CLEAVE_TEST_GPU_ANEW_H

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

namespace cleave::gpu {

// Starts this program again with the arguments `words`, of which the first one
// is its name, and returns its exit code. Returns 3 if the program cannot be
// started or does not exit with a code from 0 to 3.
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
