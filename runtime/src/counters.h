// Bytes moved between ranks, per rank and purpose. Written by the copy loops
// of the transports only.
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
        entries(static_cast<size_t>(ranks) * this->purposes.size()) {}

  Entry &at(int rank, int purpose) {
    return entries[static_cast<size_t>(rank) * purposes.size() + purpose];
  }
  void reset() {
    for (Entry &entry : entries)
      entry.sent = entry.received = entry.calls = 0;
  }

  const std::vector<std::string> purposes;

private:
  std::vector<Entry> entries;
};

} // namespace cleave

#endif // CLEAVE_RUNTIME_COUNTERS_H
