// Vector clocks, which order the operations of streams (happens-before).
#ifndef CLEAVE_TEST_GPU_RECORDER_CLOCK_H
#define CLEAVE_TEST_GPU_RECORDER_CLOCK_H

#include <algorithm>
#include <cstdint>
#include <vector>

namespace recorder {

// A vector clock. Each stream has one component, called its lane, which counts
// the stream's operations.
class Clock {
public:
  uint64_t at(int lane) const {
    return lane < int(ticks.size()) ? ticks[lane] : 0;
  }
  void advance(int lane, uint64_t tick) {
    if (lane >= int(ticks.size()))
      ticks.resize(lane + 1);
    ticks[lane] = std::max(ticks[lane], tick);
  }
  void join(const Clock &other) {
    if (other.ticks.size() > ticks.size())
      ticks.resize(other.ticks.size());
    for (size_t i = 0; i < other.ticks.size(); ++i)
      ticks[i] = std::max(ticks[i], other.ticks[i]);
  }

private:
  std::vector<uint64_t> ticks;
};

} // namespace recorder

#endif // CLEAVE_TEST_GPU_RECORDER_CLOCK_H
