// When a rank began and ended each command of the actions that the host ran.
#ifndef CLEAVE_RUNTIME_TRACE_H
#define CLEAVE_RUNTIME_TRACE_H

#include "cleave/program.h"
#include "cleave/runtime.h"

#include <chrono>
#include <set>
#include <string>
#include <vector>

namespace cleave {

// As processes tell each other.
struct TraceEvent {
  int64_t begin = 0, end = 0; // nanoseconds of the monotonic clock
  uint32_t action = 0, command = 0;
};

inline int64_t traceClock() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The events of one rank. Room is made before an action runs, so that nothing
// is allocated while it does.
class Trace {
public:
  void makeRoom(size_t commands) {
    size_t need = events.size() + commands;
    if (events.capacity() < need)
      events.reserve(std::max(need, 2 * events.capacity()));
  }
  void add(const TraceEvent &event) { events.push_back(event); }

  std::vector<TraceEvent> events;
};

// What the host is told of an event. `names` holds what had to be put together.
cleave_trace_event describe(const program::Program &program,
                            const TraceEvent &event,
                            std::set<std::string> &names);

} // namespace cleave

#endif // CLEAVE_RUNTIME_TRACE_H
