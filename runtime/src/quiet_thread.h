// Threads that take no signals: those belong to the threads of the host
// program.
#ifndef CLEAVE_RUNTIME_QUIET_THREAD_H
#define CLEAVE_RUNTIME_QUIET_THREAD_H

#include <csignal>
#include <pthread.h>
#include <thread>
#include <utility>

namespace cleave {

// A thread with all signals blocked. Throws what std::thread does.
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

} // namespace cleave

#endif // CLEAVE_RUNTIME_QUIET_THREAD_H
