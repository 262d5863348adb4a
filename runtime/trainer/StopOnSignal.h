// How SIGINT, SIGTERM and SIGHUP end the training loop.

#ifndef CLEAVE_TRAINER_STOPONSIGNAL_H
#define CLEAVE_TRAINER_STOPONSIGNAL_H

#include <array>
#include <csignal>

namespace cleave {

/// While it lives, the first of these signals asks the loop to stop; the second
/// one of the kind does what it did before: it ends the process. SIGHUP stays
/// ignored where it was (nohup).
class StopOnSignal {
public:
  StopOnSignal() {
    wanted = 0;
    struct sigaction action{};
    action.sa_handler = [](int number) {
      wanted = 1;
      for (size_t i = 0; i < numbers.size(); ++i)
        if (numbers[i] == number)
          ::sigaction(number, &old[i], nullptr);
    };
    action.sa_flags = SA_RESTART;
    for (size_t i = 0; i < numbers.size(); ++i) {
      ::sigaction(numbers[i], nullptr, &old[i]);
      if (numbers[i] != SIGHUP || old[i].sa_handler != SIG_IGN)
        ::sigaction(numbers[i], &action, nullptr);
    }
  }
  ~StopOnSignal() {
    for (size_t i = 0; i < numbers.size(); ++i)
      ::sigaction(numbers[i], &old[i], nullptr);
  }
  bool requested() const { return wanted; }

private:
  static constexpr std::array<int, 3> numbers = {SIGINT, SIGTERM, SIGHUP};
  static inline volatile std::sig_atomic_t wanted = 0;
  static inline std::array<struct sigaction, 3> old;
};

} // namespace cleave

#endif // CLEAVE_TRAINER_STOPONSIGNAL_H
