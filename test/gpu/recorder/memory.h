// Memory of the devices, which is the host's, and who has touched it.
#ifndef CLEAVE_TEST_GPU_RECORDER_MEMORY_H
#define CLEAVE_TEST_GPU_RECORDER_MEMORY_H

#include "clock.h"
#include "report.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace recorder {

// An access that has happened.
struct Epoch {
  int lane = -1;
  uint64_t tick = 0;
  std::shared_ptr<const Who> who;

  bool isBefore(const Clock &clock) const {
    return lane < 0 || tick <= clock.at(lane);
  }
};

class Allocation {
public:
  // On the host where device < 0. Slack around it holds a pattern; beyond it
  // is memory that nobody may touch.
  Allocation(int64_t bytes, int device, int number);
  ~Allocation();
  Allocation(const Allocation &) = delete;

  // The first byte of the slack that was overwritten, from data; 0: none.
  int64_t findOverrun() const;
  void repairSlack();

  // Enters the access; returns the one that it conflicts with, if any.
  const Epoch *enter(int64_t begin, int64_t end, bool written,
                     const Epoch &mine, const Clock &clock);
  // Of all accesses, one that is not before the clock.
  const Epoch *findAfter(const Clock &clock) const;

  std::string name() const;

  char *data = nullptr;
  const int64_t bytes;
  const int device, number;

private:
  struct Segment {
    int64_t end = 0;
    Epoch writer;
    std::vector<Epoch> readers; // since the writer; one for each lane
  };
  using Segments = std::map<int64_t, Segment>;
  Segments::iterator cut(int64_t at);

  char *mapped = nullptr;
  int64_t mappedBytes = 0, slackEnd = 0;
  Segments segments; // [0, bytes), without gaps
};

class Memory {
public:
  Allocation *add(int64_t bytes, int device);
  void remove(Allocation *allocation);
  // The one that holds the address, also one past the end; NULL: none.
  Allocation *find(const void *at) const;
  int64_t used(int device) const;
  // "allocation 3 + 512", for messages.
  std::string place(const void *at) const;

  std::map<const char *, std::unique_ptr<Allocation>> all;

private:
  int made = 0;
};

} // namespace recorder

#endif // CLEAVE_TEST_GPU_RECORDER_MEMORY_H
