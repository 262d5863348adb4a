// Sends and receives the host's heartbeat.

#include "heartbeat.h"

#include "error.h"
#include "quiet_thread.h"

#include <algorithm>

using namespace cleave;

namespace {
constexpr int host = 0;
constexpr std::chrono::milliseconds every{500}, lookEvery{100};
// A longer time between two checks means that this process itself was stopped.
constexpr std::chrono::seconds longestGap{1};
} // namespace

Heart::Heart(Wire &wire, int channel, int tag)
    : wire(wire), channel(channel), tag(tag) {
  thread = startQuietThread([this] { beat(); });
}

Heart::~Heart() {
  {
    std::lock_guard lock(mutex);
    isEnding = true;
  }
  wake.notify_all();
  thread.join();
}

void Heart::beat() {
  std::vector<Wire::Request> requests(wire.size());
  std::vector<bool> isLost(wire.size());
  std::unique_lock lock(mutex);
  while (!isEnding) {
    lock.unlock();
    for (int peer = 0; peer < wire.size(); ++peer)
      try {
        Wire::Request &request = requests[peer];
        if (peer == wire.rank() || isLost[peer] || wire.hasGone(peer) ||
            (request.active && !wire.test(request, nullptr)))
          continue;
        wire.send(request, channel, peer, tag, nullptr, 0);
      } catch (const RuntimeError &) {
        isLost[peer] = true; // code that needs the rank reports it
      }
    lock.lock();
    wake.wait_for(lock, every, [this] { return isEnding; });
  }
  for (Wire::Request &request : requests)
    if (request.active)
      try {
        if (!wire.test(request, nullptr))
          wire.drop(request, /*isReceive=*/false);
      } catch (const RuntimeError &) {
        continue;
      }
}

Pulse::Pulse(Wire &wire, int channel, int tag)
    : wire(wire), channel(channel), tag(tag) {}

double Pulse::secondsOfSilence() {
  Clock::time_point now = Clock::now();
  if (now - looked >= lookEvery) {
    silent += std::min<Clock::duration>(now - looked, longestGap);
    looked = now;
    int64_t bytes = 0;
    while (wire.probe(channel, host, tag, bytes)) {
      Wire::Request request;
      wire.receive(request, channel, host, tag, nullptr, 0);
      while (!wire.test(request, nullptr))
        continue; // the message has arrived
      silent = {};
    }
  }
  return std::chrono::duration<double>(silent).count();
}
