// The host's sign of life. Workers wait for its word while it saves or
// validates, however long that takes (while it compiles: rendezvous.h and
// host_watch.h); a host that has been stopped, or whose
// machine has, says nothing more.
#ifndef CLEAVE_RUNTIME_HEARTBEAT_H
#define CLEAVE_RUNTIME_HEARTBEAT_H

#include "wire.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace cleave {

// In the host: sends an empty message to every worker twice a second, from a
// thread of its own. At most one is under way to each, so that a worker that
// has been stopped is not flooded.
class Heart {
public:
  Heart(Wire &wire, int channel, int tag);
  ~Heart();

private:
  void beat();

  Wire &wire;
  const int channel, tag;
  std::mutex mutex;
  std::condition_variable wake;
  bool isEnding = false;
  std::thread thread;
};

// In a worker: how long the host has been silent. Counts only while this
// process runs itself, so that a job that is stopped as a whole goes on.
class Pulse {
public:
  Pulse(Wire &wire, int channel, int tag);

  // Looks for signs, a few times a second at most.
  double secondsOfSilence();

private:
  using Clock = std::chrono::steady_clock;
  Wire &wire;
  const int channel, tag;
  Clock::time_point looked = Clock::now();
  Clock::duration silent{};
};

} // namespace cleave

#endif // CLEAVE_RUNTIME_HEARTBEAT_H
