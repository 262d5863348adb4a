// Observes the process of rank 0 through /proc.

#include "host_watch.h"

#include "cleave/io/Escape.h"
#include "quiet_thread.h"

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <unistd.h>

using namespace cleave;
namespace fs = std::filesystem;

namespace {

struct Status {
  char state = 0; // 0: the process does not exist
  int parent = 0;
};

Status statusOf(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  Status status;
  // The name of the executable, in parentheses, may contain any characters.
  if (size_t end = text.rfind(')'); end != std::string::npos)
    std::sscanf(text.c_str() + end + 1, " %c %d", &status.state,
                &status.parent);
  return status;
}

// Returns whether a process has rank 0. Launchers give each process its rank in
// one of these environment variables.
bool isRankZero(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/environ");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  text.insert(0, 1, '\0');
  for (std::string_view name :
       {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    std::string entry = std::string(1, '\0') + std::string(name) + "=0";
    entry += '\0';
    if (std::getenv(std::string(name).c_str()) &&
        text.find(entry) != std::string::npos)
      return true;
  }
  return false;
}

// Returns the process id of rank 0 if that process is a sibling on this machine
// (has the same parent), else 0.
int findHost() {
  const int parent = getppid();
  std::error_code error, ignored;
  for (const fs::directory_entry &entry :
       fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    int process = 0;
    auto [end, code] =
        std::from_chars(name.data(), name.data() + name.size(), process);
    if (code == std::errc() && *end == 0 && process != getpid() &&
        statusOf(process).parent == parent && isRankZero(process))
      return process;
  }
  return 0;
}

} // namespace

HostWatch::HostWatch(int rank, double seconds) : rank(rank) {
  thread = startQuietThread([this, seconds] { watch(seconds); });
}

HostWatch::~HostWatch() {
  {
    std::lock_guard lock(mutex);
    isEnding = true;
  }
  wake.notify_all();
  thread.join();
}

void HostWatch::watch(double seconds) {
  constexpr double lookEvery = 0.5;
  double stopped = 0;
  int host = 0;
  std::unique_lock lock(mutex);
  while (!wake.wait_for(lock, std::chrono::duration<double>(lookEvery),
                        [this] { return isEnding; })) {
    if (!host)
      host = findHost();
    char state = host ? statusOf(host).state : 0;
    stopped = state == 'T' || state == 't' ? stopped + lookEvery : 0;
    if (stopped <= seconds)
      continue;
    if (rank == 1) // only one worker reports it
      printEscaped(stderr,
                   "%s: error: rank 0 does not respond: its process %d has "
                   "been stopped for %g s\n",
                   program_invocation_short_name, host, seconds);
    else
      usleep(500'000);
    _exit(3);
  }
}
