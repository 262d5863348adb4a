// Records which member has started which collective.

#include "nccl_group.h"

#include "error.h"

#include <algorithm>
#include <chrono>

using namespace cleave;
using namespace cleave::cuda;
using program::CollectiveKind;

namespace {
// Returns whether the calls of two members belong to the same collective.
bool agree(const CollectiveCall &a, const CollectiveCall &b) {
  if (a.kind != b.kind || a.dtype != b.dtype || a.reduce != b.reduce ||
      a.members != b.members || a.root != b.root || a.sources != b.sources ||
      a.parts.size() != b.parts.size())
    return false;
  for (size_t i = 0; i < a.parts.size(); ++i) {
    // The members of an exchange have tiles of different sizes.
    bool same = a.kind == CollectiveKind::Exchange ||
                (a.parts[i].count == b.parts[i].count &&
                 a.parts[i].outer == b.parts[i].outer);
    if (!same)
      return false;
  }
  return true;
}

std::string sizeOf(const CollectiveCall &call) {
  int64_t bytes = 0;
  for (const Part &part : call.parts)
    bytes += part.count * program::sizeOf(call.dtype);
  return describe(call) + " of " + std::to_string(bytes) + " bytes";
}
} // namespace

int64_t NcclGroup::start(const CollectiveCall &call) {
  std::lock_guard lock(mutex);
  if (isAborted)
    throw Aborted();
  int64_t turn = ++turns[call.self];
  Started &mine = started[turn];
  if (mine.members++ == 0)
    mine.call = call;
  else if (!agree(mine.call, call) && mine.failure.empty())
    mine.failure =
        "ranks " + std::to_string(mine.call.members[mine.call.self]) + " and " +
        std::to_string(call.members[call.self]) + " meet in different " +
        (call.kind == CollectiveKind::SendRecv ? "transfers: "
                                               : "collectives: ") +
        sizeOf(mine.call) + " and " + sizeOf(call);
  std::string failure = mine.failure;
  if (mine.members == int(turns.size()) && failure.empty())
    started.erase(turn);
  changed.notify_all();
  if (!failure.empty())
    fail(CLEAVE_BAD_PROGRAM, failure);
  return turn;
}

void NcclGroup::enqueued(int self) {
  std::lock_guard lock(mutex);
  ++enqueuedTurns[self];
  changed.notify_all();
}

void NcclGroup::await(const CollectiveCall &call, int64_t turn,
                      const std::function<void()> &drive) {
  auto deadline = std::chrono::steady_clock::now() +
                  std::chrono::duration<double>(options.timeoutSeconds);
  constexpr std::chrono::microseconds least(50), most(1000);
  for (auto pause = least;; pause = std::min(2 * pause, most)) {
    drive();
    std::unique_lock lock(mutex);
    auto found = started.find(turn);
    if (found != started.end() && !found->second.failure.empty())
      fail(CLEAVE_BAD_PROGRAM, found->second.failure);
    auto hasCome = [&] {
      return *std::min_element(enqueuedTurns.begin(), enqueuedTurns.end()) >=
             turn;
    };
    if (hasCome())
      return;
    bool isLate = std::chrono::steady_clock::now() > deadline;
    if (!isLate && !isAborted) {
      changed.wait_for(lock, pause);
      continue;
    }
    bool wasAborted = isAborted;
    lock.unlock();
    std::vector<int> ranks = missing(call, turn);
    if (wasAborted)
      throw Aborted(ranks.empty() ? -1 : ranks.front());
    throw lateness(call, options.timeoutSeconds, ranks);
  }
}

std::vector<int> NcclGroup::missing(const CollectiveCall &call, int64_t turn) {
  std::lock_guard lock(mutex);
  std::vector<int> ranks;
  for (const std::vector<int64_t> *reached : {&turns, &enqueuedTurns}) {
    for (size_t i = 0; i < turns.size(); ++i)
      if ((*reached)[i] < turn)
        ranks.push_back(call.members[i]);
    if (!ranks.empty())
      break;
  }
  return ranks;
}

void NcclGroup::abort() {
  std::lock_guard lock(mutex);
  isAborted = true;
  changed.notify_all();
}
