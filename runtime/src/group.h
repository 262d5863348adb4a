// Ranks of one process that hold collectives together.
#ifndef CLEAVE_RUNTIME_GROUP_H
#define CLEAVE_RUNTIME_GROUP_H

#include "transport.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

namespace cleave {

class Group {
public:
  Group(std::vector<int> members, const TransportOptions &options)
      : members(std::move(members)), options(options),
        passed(this->members.size()), calls(this->members.size()),
        begins(this->members.size()) {}

  // Waits until all members are here. The release of the last one orders all
  // writes before the barrier with all reads after it. Throws Aborted, or Error
  // TIMEOUT naming who is missing.
  void barrier(const CollectiveCall &call);
  void abort();

  // Throws BAD_PROGRAM unless all members have brought the same collective:
  // programs that disagree would read wild memory.
  void checkCalls(const CollectiveCall &own) const;

  const std::vector<int> members;

private:
  std::vector<int> missing(uint32_t next) const;

  const TransportOptions &options;
  alignas(64) std::atomic<uint32_t> arrived{0};
  alignas(64) std::atomic<uint32_t> generation{0};
  std::vector<std::atomic<uint32_t>> passed;

public:
  // What each member brought to the current collective: written before the
  // first barrier, read by the others until the last one. Shared: a member that
  // fails may be gone while others still look at what it brought.
  std::vector<std::shared_ptr<const CollectiveCall>> calls;
  // `local`: when each member's side of the link was free for it. Likewise.
  std::vector<std::chrono::steady_clock::time_point> begins;
};

// AllToAllV: how many rows come from a member, checked against what it sends.
int64_t rowsFrom(const CollectiveCall &call, const CollectiveCall &peer,
                 int member);

} // namespace cleave

#endif // CLEAVE_RUNTIME_GROUP_H
