// Waits for a word of memory to change, between threads of this process.
#ifndef CLEAVE_RUNTIME_FUTEX_H
#define CLEAVE_RUNTIME_FUTEX_H

#include <atomic>
#include <cstdint>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace cleave {

inline constexpr int spinRounds = 4000;

inline void futexWake(std::atomic<uint32_t> &word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAKE_PRIVATE,
          INT32_MAX, nullptr, nullptr, 0);
}

// Returns when the word differs from `expected`, after a wake-up, or after
// `seconds`.
inline void futexWait(std::atomic<uint32_t> &word, uint32_t expected,
                      double seconds) {
  timespec limit;
  limit.tv_sec = static_cast<time_t>(seconds);
  limit.tv_nsec = static_cast<long>((seconds - double(limit.tv_sec)) * 1e9);
  syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAIT_PRIVATE,
          expected, &limit, nullptr, 0);
}

} // namespace cleave

#endif // CLEAVE_RUNTIME_FUTEX_H
