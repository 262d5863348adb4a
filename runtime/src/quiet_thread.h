// Threads that block all signals, so that signals are handled by threads of the
// host program.
#ifndef CLEAVE_RUNTIME_QUIET_THREAD_H
#define CLEAVE_RUNTIME_QUIET_THREAD_H

#include <csignal>
#include <latch>
#include <pthread.h>
#include <thread>
#include <utility>
#include <vector>

namespace cleave {

// Starts a thread with all signals blocked. Throws the same exceptions as the
// constructor of std::thread.
template <typename F> std::thread startQuietThread(F &&body) {
  struct Blocked {
    sigset_t before;
    Blocked() {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    ~Blocked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
  } blocked;
  return std::thread(std::forward<F>(body));
}

// Throws std::system_error unless `count` more threads can be started now. This
// is called before the first parallel work: OpenMP then starts its threads, and
// would end the process if it could not.
inline void requireThreads(int count) {
  std::latch done(1);
  std::vector<std::thread> threads;
  threads.reserve(count);
  auto join = [&] {
    done.count_down();
    for (std::thread &thread : threads)
      thread.join();
  };
  try {
    for (int i = 0; i < count; ++i)
      threads.push_back(startQuietThread([&] { done.wait(); }));
  } catch (...) {
    join();
    throw;
  }
  join();
}

} // namespace cleave

#endif // CLEAVE_RUNTIME_QUIET_THREAD_H
