// Counters of each rank: the bytes that it sends and receives, counted for each
// purpose of a transfer by the copy loops of the transports, and the
// floating-point operations of attention, counted by the attention kernels.
#ifndef CLEAVE_RUNTIME_COUNTERS_H
#define CLEAVE_RUNTIME_COUNTERS_H

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace cleave {

class Counters {
public:
  struct Entry {
    std::atomic<int64_t> sent{0}, received{0}, calls{0};
  };

  Counters(int ranks, std::vector<std::string> purposes)
      : purposes(std::move(purposes)),
        entries(static_cast<size_t>(ranks) * this->purposes.size()),
        flops(ranks) {}

  Entry &at(int rank, int purpose) {
    return entries[static_cast<size_t>(rank) * purposes.size() + purpose];
  }
  std::atomic<int64_t> &attentionFlops(int rank) { return flops[rank]; }
  void reset() {
    for (Entry &entry : entries)
      entry.sent = entry.received = entry.calls = 0;
    for (std::atomic<int64_t> &count : flops)
      count = 0;
  }

  const std::vector<std::string> purposes;

private:
  std::vector<Entry> entries;
  std::vector<std::atomic<int64_t>> flops; // by rank
};

} // namespace cleave

#endif // CLEAVE_RUNTIME_COUNTERS_H
