// When a rank began and ended each command of the actions that the host ran.
#ifndef CLEAVE_RUNTIME_TRACE_H
#define CLEAVE_RUNTIME_TRACE_H

#include "cleave/program.h"
#include "cleave/runtime.h"

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <utility>
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
  // An action of `commands` commands; passed(n) is when the first n were done.
  void add(uint32_t action, size_t commands, const auto &passed) {
    for (size_t i = 0; i < commands; ++i)
      events.push_back(
          {passed(i), passed(i + 1), action, static_cast<uint32_t>(i)});
  }

  std::vector<TraceEvent> events;
};

// What the host is told of the events of one rank, in their order.
class TraceReader {
public:
  TraceReader(const program::Program &program, int rank)
      : program(program), rank(rank) {}

  // `names` holds what had to be put together.
  cleave_trace_event describe(const TraceEvent &event,
                              std::set<std::string> &names);

private:
  struct Message {
    int32_t from = -1, to = -1;
    int64_t number = 0;
  };
  // The message that the event starts to send or ends to receive.
  Message messageOf(const TraceEvent &event);

  const program::Program &program;
  const int rank;
  std::map<std::pair<int32_t, int32_t>, int64_t> counts; // by sender, receiver
  // What is being received: by action and token.
  std::map<std::pair<uint32_t, int32_t>, Message> receives;
};

} // namespace cleave

#endif // CLEAVE_RUNTIME_TRACE_H
