// The memory of the simulated devices. It is host memory. Each allocation
// records the operations that have accessed it, so that accesses without an
// order (data races) are found.
#ifndef CLEAVE_TEST_GPU_RECORDER_MEMORY_H
#define CLEAVE_TEST_GPU_RECORDER_MEMORY_H

#include "clock.h"
#include "report.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace recorder {

// A recorded access to memory. It happened when component `lane` of the vector
// clocks had the value `tick`.
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
  // Allocates memory of a device, or of the host if device < 0. The guard bytes
  // around the data (the slack) hold a pattern, and the pages around the guard
  // bytes must not be accessed.
  Allocation(int64_t bytes, int device, int number);
  ~Allocation();
  Allocation(const Allocation &) = delete;

  // Returns the offset from `data` of the first guard byte that was
  // overwritten, or 0 if all guard bytes are intact.
  int64_t findOverrun() const;
  void repairSlack();

  // Records an access to [begin, end). Returns an earlier access that conflicts
  // with it, or NULL.
  const Epoch *enter(int64_t begin, int64_t end, bool written,
                     const Epoch &mine, const Clock &clock);
  // Returns an access that is not ordered before the clock (happens-before), or
  // NULL if all accesses are.
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
  // Returns the allocation that contains the address or ends at it, or NULL.
  Allocation *find(const void *at) const;
  int64_t used(int device) const;
  // Describes an address in messages: "allocation 3 + 512".
  std::string place(const void *at) const;

  std::map<const char *, std::unique_ptr<Allocation>> all;

private:
  int made = 0;
};

} // namespace recorder

#endif // CLEAVE_TEST_GPU_RECORDER_MEMORY_H
