// Records when a rank began and ended each command of the actions that the host
// ran.
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

// An event of a rank, in the form in which processes send it to each other.
struct TraceEvent {
  int64_t begin = 0, end = 0; // nanoseconds of the monotonic clock
  uint32_t action = 0, command = 0;
};

inline int64_t traceClock() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The events of one rank. Memory is reserved before an action runs, so that
// recording allocates nothing.
class Trace {
public:
  void makeRoom(size_t commands) {
    size_t need = events.size() + commands;
    if (events.capacity() < need)
      events.reserve(std::max(need, 2 * events.capacity()));
  }
  // Records the events of an action with this number of commands. passed(n)
  // returns the time at which its first n commands were complete.
  void add(uint32_t action, size_t commands, const auto &passed) {
    for (size_t i = 0; i < commands; ++i)
      events.push_back(
          {passed(i), passed(i + 1), action, static_cast<uint32_t>(i)});
  }

  std::vector<TraceEvent> events;
};

// Converts the events of one rank to the form of the C ABI. The events must be
// passed in order.
class TraceReader {
public:
  TraceReader(const program::Program &program, int rank)
      : program(program), rank(rank) {}

  // `names` receives strings that had to be composed, and owns them.
  cleave_trace_event describe(const TraceEvent &event,
                              std::set<std::string> &names);

private:
  struct Message {
    int32_t from = -1, to = -1;
    int64_t number = 0;
  };
  // Returns the message that the event starts to send or finishes to receive.
  Message messageOf(const TraceEvent &event);

  const program::Program &program;
  const int rank;
  std::map<std::pair<int32_t, int32_t>, int64_t> counts; // by sender, receiver
  // The messages of receives that have started but not ended, by the action and
  // the token of the receive.
  std::map<std::pair<uint32_t, int32_t>, Message> receives;
};

} // namespace cleave

#endif // CLEAVE_RUNTIME_TRACE_H
