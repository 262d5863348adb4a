// How SIGINT and SIGTERM end the training loop.

#ifndef CLEAVE_TRAINER_STOPONSIGNAL_H
#define CLEAVE_TRAINER_STOPONSIGNAL_H

#include <csignal>

namespace cleave {

/// While it lives, the first SIGINT or SIGTERM asks the loop to stop; the
/// second one does what it did before: it ends the process.
class StopOnSignal {
public:
  StopOnSignal() {
    wanted = 0;
    struct sigaction action{};
    action.sa_handler = [](int number) {
      wanted = 1;
      ::sigaction(number, number == SIGINT ? &oldInt : &oldTerm, nullptr);
    };
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGINT, &action, &oldInt);
    ::sigaction(SIGTERM, &action, &oldTerm);
  }
  ~StopOnSignal() {
    ::sigaction(SIGINT, &oldInt, nullptr);
    ::sigaction(SIGTERM, &oldTerm, nullptr);
  }
  bool requested() const { return wanted; }

private:
  static inline volatile std::sig_atomic_t wanted = 0;
  static inline struct sigaction oldInt, oldTerm;
};

} // namespace cleave

#endif // CLEAVE_TRAINER_STOPONSIGNAL_H
