// A session: the ranks of a program, one thread each, and their transport.
#ifndef CLEAVE_RUNTIME_SESSION_H
#define CLEAVE_RUNTIME_SESSION_H

#include "counters.h"
#include "error.h"
#include "rank.h"
#include "transport.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

struct cleave_session {
public:
  cleave_session(cleave_program &program,
                 const cleave_session_options &options);
  ~cleave_session();

  void run(std::string_view action);
  void injectFailure(int rank, int64_t run, int command, bool hang);
  const cleave::program::Boundary &boundary(const std::string &name) const;
  void *tile(int rank, const cleave::program::Boundary &entry) const;
  std::vector<void *> tiles(const cleave::program::Boundary &entry) const;
  void checkRank(int rank) const;
  // A rank did not even answer the watchdog: its thread may still run, so the
  // session must never be freed.
  bool lost() const { return isLost; }

  cleave_program &program;
  cleave::Counters counters;
  std::vector<std::unique_ptr<cleave::Rank>> ranks;

  struct Failure {
    cleave_status status = CLEAVE_OK;
    int rank = -1;
    std::string action, source, message;
    int command = -1;
  } failure;

private:
  enum class Job { Idle, Prepare, Run, Quit };

  void threadMain(int rank);
  void dispatch(Job next); // runs a job on all ranks and waits for them
  void quit();
  void execute(cleave::Rank &rank);
  void recordFailure(cleave_status status, int rank, const std::string &message,
                     const cleave::program::Command *command, int index);
  void injected(cleave::Rank &rank, int command);

  const double timeoutSeconds;
  const bool poison;
  std::unique_ptr<cleave::Transport> transport;
  std::vector<std::unique_ptr<cleave::Endpoint>> endpoints;

  // Guards what follows and `failure`.
  std::mutex mutex;
  std::condition_variable wakeRanks, wakeCaller;
  Job job = Job::Idle;
  uint64_t turn = 0; // counts dispatched jobs
  int busy = 0;
  std::string_view action;
  bool isLost = false;
  int64_t runs = 0;
  struct Injection {
    int rank = -1, command = 0;
    int64_t run = 0;
    bool hang = false;
  } injection;

  std::vector<std::thread> threads;
};

#endif // CLEAVE_RUNTIME_SESSION_H
