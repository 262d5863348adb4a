// Watches whether the host is alive before MPI is initialized. The host may
// compile before it initializes MPI, and MPI_Init waits for it without a time
// limit.
#ifndef CLEAVE_RUNTIME_HOST_WATCH_H
#define CLEAVE_RUNTIME_HOST_WATCH_H

#include <condition_variable>
#include <mutex>
#include <thread>

namespace cleave {

// Runs in a worker. If the process of rank 0 is a sibling on this machine and
// has been stopped for longer than `seconds`, this process prints a message and
// ends with code 3. Launchers then end the rest of the job.
class HostWatch {
public:
  HostWatch(int rank, double seconds);
  ~HostWatch();

private:
  void watch(double seconds);

  const int rank;
  std::mutex mutex;
  std::condition_variable wake;
  bool isEnding = false;
  std::thread thread;
};

} // namespace cleave

#endif // CLEAVE_RUNTIME_HOST_WATCH_H
