// Whether the host runs at all, before MPI has been joined: the host may
// compile first, and MPI waits for it without end.
#ifndef CLEAVE_RUNTIME_HOST_WATCH_H
#define CLEAVE_RUNTIME_HOST_WATCH_H

#include <condition_variable>
#include <mutex>
#include <thread>

namespace cleave {

// In a worker, while it lives: where the process of rank 0, if it is a process
// of this machine with the same parent, has been stopped for longer than
// `seconds`, this process says so and ends with 3. Launchers then end the rest
// of the job.
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
