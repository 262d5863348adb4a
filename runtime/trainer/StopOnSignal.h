// How signals end the training loop.

#ifndef CLEAVE_TRAINER_STOPONSIGNAL_H
#define CLEAVE_TRAINER_STOPONSIGNAL_H

#include <array>
#include <csignal>

namespace cleave {

/// During the lifetime of this object, SIGINT, SIGTERM, SIGHUP, SIGUSR1 and
/// SIGXCPU ask the training loop to stop (requested()). A second signal of the
/// same number has the effect that it had before this object existed: it ends
/// the process. Signals that were ignored stay ignored, such as SIGHUP under
/// nohup and SIGINT in background jobs of scripts.
///
/// Batch systems send SIGUSR1 shortly before a job's time ends. The kernel
/// sends SIGXCPU every second once the process has used the processor time that
/// it is allowed, so further SIGXCPU do not end the process.
class StopOnSignal {
public:
  StopOnSignal() {
    wanted = 0;
    struct sigaction action{};
    action.sa_handler = [](int number) {
      wanted = 1;
      for (size_t i = 0; i < numbers.size(); ++i)
        if (numbers[i] == number && number != SIGXCPU)
          ::sigaction(number, &old[i], nullptr);
    };
    action.sa_flags = SA_RESTART;
    for (size_t i = 0; i < numbers.size(); ++i) {
      ::sigaction(numbers[i], nullptr, &old[i]);
      if (old[i].sa_handler != SIG_IGN)
        ::sigaction(numbers[i], &action, nullptr);
    }
  }
  ~StopOnSignal() {
    for (size_t i = 0; i < numbers.size(); ++i)
      ::sigaction(numbers[i], &old[i], nullptr);
  }
  bool requested() const { return wanted; }

private:
  static constexpr std::array<int, 5> numbers = {SIGINT, SIGTERM, SIGHUP,
                                                 SIGUSR1, SIGXCPU};
  static inline volatile std::sig_atomic_t wanted = 0;
  static inline std::array<struct sigaction, numbers.size()> old;
};

} // namespace cleave

#endif // CLEAVE_TRAINER_STOPONSIGNAL_H
