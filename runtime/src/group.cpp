// Barriers between ranks that are threads of one process.

#include "group.h"

#include "futex.h"

#include <chrono>

using namespace cleave;

namespace {
using Clock = std::chrono::steady_clock;

constexpr uint32_t abortedBit = 0x80000000;
} // namespace

void Group::barrier(const CollectiveCall &call) {
  uint32_t turn = generation.load(std::memory_order_acquire);
  if (turn & abortedBit)
    throw Aborted();
  uint32_t next = (turn + 1) & ~abortedBit;
  passed[call.self].store(next, std::memory_order_relaxed);
  if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == members.size()) {
    arrived.store(0, std::memory_order_relaxed);
    // compare_exchange fails only if abort() has set the abort bit in the
    // meantime. The bit must stay set.
    if (!generation.compare_exchange_strong(turn, next,
                                            std::memory_order_acq_rel))
      throw Aborted();
    futexWake(generation);
    return;
  }
  for (int round = 0; options.spin && round < spinRounds; ++round) {
    if (generation.load(std::memory_order_acquire) != turn)
      break;
    __builtin_ia32_pause();
  }
  auto deadline =
      Clock::now() + std::chrono::duration<double>(options.timeoutSeconds);
  while (true) {
    uint32_t now = generation.load(std::memory_order_acquire);
    if (now == next)
      return;
    // If abort() was called after all members had arrived, the barrier was
    // passed; Aborted is thrown anyway, because the run is lost.
    if (now & abortedBit) {
      std::vector<int> ranks = missing(next);
      throw Aborted(ranks.empty() ? -1 : ranks.front());
    }
    double left =
        std::chrono::duration<double>(deadline - Clock::now()).count();
    if (left <= 0)
      throw lateness(call, options.timeoutSeconds, missing(next));
    futexWait(generation, turn, left);
  }
}

void Group::abort() {
  generation.fetch_or(abortedBit, std::memory_order_acq_rel);
  futexWake(generation);
}

std::vector<int> Group::missing(uint32_t next) const {
  std::vector<int> ranks;
  for (size_t i = 0; i < members.size(); ++i)
    if (passed[i].load(std::memory_order_relaxed) != next)
      ranks.push_back(members[i]);
  return ranks;
}

void Group::checkCalls(const CollectiveCall &own) const {
  for (size_t p = 0; p < members.size(); ++p) {
    const CollectiveCall &peer = *calls[p];
    bool same = peer.kind == own.kind && peer.dtype == own.dtype &&
                peer.parts.size() == own.parts.size();
    for (size_t i = 0; same && i < own.parts.size(); ++i)
      same = peer.parts[i].count == own.parts[i].count &&
             peer.parts[i].outer == own.parts[i].outer;
    if (!same)
      fail(CLEAVE_BAD_PROGRAM, "ranks " + std::to_string(members[own.self]) +
                                   " and " + std::to_string(members[p]) +
                                   " meet in different collectives: " +
                                   describe(own) + " and " + describe(peer));
  }
}

int64_t cleave::rowsFrom(const CollectiveCall &call, const CollectiveCall &peer,
                         int member) {
  int64_t rows = rowsOf(call, call.received, member);
  if (int64_t sent = rowsOf(peer, peer.sent, call.self); sent != rows)
    fail(CLEAVE_BAD_PROGRAM, "rank " + std::to_string(call.members[member]) +
                                 " sends " + std::to_string(sent) +
                                 " rows in " + describe(call) + ", expected " +
                                 std::to_string(rows));
  return rows;
}
