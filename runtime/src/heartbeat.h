// The heartbeat of the host. Workers wait for the host's next request, which
// may take long while the host saves or validates. The heartbeat stops if the
// host or its machine has stopped. While the host compiles, rendezvous.h and
// host_watch.h watch it instead.
#ifndef CLEAVE_RUNTIME_HEARTBEAT_H
#define CLEAVE_RUNTIME_HEARTBEAT_H

#include "wire.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace cleave {

// The host's side: a thread sends an empty message to every worker twice a
// second. At most one message is in flight to each worker, so that a stopped
// worker is not flooded.
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

// The worker's side: measures how long the host has been silent. Only time in
// which this process itself runs counts, so that a job survives being stopped
// and continued as a whole.
class Pulse {
public:
  Pulse(Wire &wire, int channel, int tag);

  // Checks for heartbeats, at most a few times a second.
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
