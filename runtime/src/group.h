// A group of ranks in one process that run collectives together.
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

  // Waits until all members arrive. Writes of all members before the barrier
  // are visible to all members after it. Throws Aborted, or Error TIMEOUT that
  // names the missing ranks.
  void barrier(const CollectiveCall &call);
  void abort();

  // Throws BAD_PROGRAM unless all members call the same collective. If the
  // command lists of ranks disagree, a rank would access invalid memory.
  void checkCalls(const CollectiveCall &own) const;

  const std::vector<int> members;

private:
  std::vector<int> missing(uint32_t next) const;

  const TransportOptions &options;
  alignas(64) std::atomic<uint32_t> arrived{0};
  alignas(64) std::atomic<uint32_t> generation{0};
  std::vector<std::atomic<uint32_t>> passed;

public:
  // The current collective call of each member. A member writes its call before
  // the first barrier of the collective, and the others read it until the last
  // one. The pointers are shared, because a member that fails may end while
  // others still read its call.
  std::vector<std::shared_ptr<const CollectiveCall>> calls;
  // For the transport `local`: the time at which each member's side of the link
  // became free. Written and read like `calls`.
  std::vector<std::chrono::steady_clock::time_point> begins;
};

// For AllToAllV: returns the number of rows that come from a member. Throws if
// the member sends another number.
int64_t rowsFrom(const CollectiveCall &call, const CollectiveCall &peer,
                 int member);

} // namespace cleave

#endif // CLEAVE_RUNTIME_GROUP_H
