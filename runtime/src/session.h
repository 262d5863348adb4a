// A session: the ranks of a program and their transport. With the transport
// `local` all ranks are threads of this process. With `mpi` this process has
// one rank, and the host controls the ranks in other processes through Remote.
#ifndef CLEAVE_RUNTIME_SESSION_H
#define CLEAVE_RUNTIME_SESSION_H

#include "counters.h"
#include "error.h"
#include "rank.h"
#include "remote.h"
#include "trace.h"
#include "transport.h"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace cleave {
struct Neighbours;
// What a worker process passes to its session; null in other processes.
struct WorkerPart {
  int32_t session = 0; // the session's name
  // Called periodically while the worker waits. Ends the process if the host
  // requests it.
  std::function<void()> meanwhile;
};
} // namespace cleave

struct cleave_session {
public:
  // `part` is null except in worker processes.
  cleave_session(cleave_program &program, const cleave_session_options &options,
                 const cleave::WorkerPart *part = nullptr);
  ~cleave_session();

  void run(std::string_view action);
  void resetCounters();
  // These functions act on all boundary entries with the buffer's name.
  void scatter(const std::string &name, cleave_dtype type, const void *data,
               const void *padding);
  void gather(const std::string &name, cleave_dtype type, void *data,
              cleave_gather_report *report);
  void zero(const std::string &name);
  cleave_memory memory(int rank) const;
  void trace(bool enabled);
  // Returns the events of a rank that were recorded so far. If the rank is in
  // another process, its new events are requested from there.
  std::vector<cleave::TraceEvent> &traced(int rank);
  void injectFailure(int rank, int64_t run, int command, bool hang);
  // Returns the boundary entry (named buffer) with this name that the rank
  // holds. Without a rank, returns the first entry with this name.
  const cleave::program::Boundary &boundary(const std::string &name,
                                            int rank = -1) const;
  // Returns the address of a tile in memory. The rank must be in this process
  // and hold the entry.
  void *tile(int rank, const cleave::program::Boundary &entry) const;
  // Returns the arena that holds a tile, and the tile's first byte in it.
  std::pair<cleave::Storage *, int64_t>
  place(int rank, const cleave::program::Boundary &entry) const;
  void zero(int rank, const cleave::program::Boundary &entry);
  bool isHere(int rank) const { return ranks[rank] != nullptr; }
  void checkRank(int rank) const;
  // True if a rank's thread has not ended even after the watchdog's timeout.
  // The thread may still run, so the session must never be freed.
  bool lost() const { return isLost; }

  cleave_program &program;
  cleave::Counters counters;

private:
  // The transport outlives the operations of the ranks.
  std::unique_ptr<cleave::Transport> transport;
  std::vector<std::unique_ptr<cleave::Endpoint>> endpoints; // by rank

public:
  std::vector<std::unique_ptr<cleave::Rank>> ranks; // NULL: in another process

  cleave::Failure failure;
  // For each rank, the rank for which it waited when the run failed; -1 if it
  // waited for none.
  std::vector<int> waitedFor;
  std::set<std::string> traceNames;
  std::vector<cleave::TraceReader> traceReaders; // by rank
  // Called by the thread that waits while an action runs, so that messages make
  // progress.
  std::function<void()> meanwhile;

private:
  enum class Job { Idle, Prepare, Run, Quit };

  const std::vector<int32_t> &entriesOf(const std::string &name) const;
  void scatter(const cleave::program::Boundary &entry, cleave_dtype type,
               const void *data, const void *padding);
  void gather(const cleave::program::Boundary &entry, cleave_dtype type,
              void *data, cleave_gather_report *report);
  bool holds(int rank, const cleave::program::Boundary &entry) const;
  void threadMain(int rank);
  cleave::Neighbours neighboursOf(const cleave::WorkerPart *part);
  void dispatch(Job next); // runs a job on all ranks and waits for them
  void quit();
  // The position of a rank in its commands: the command of the action and, if
  // that is a Call, the command of the called action.
  struct Place {
    const cleave::PreparedAction *action = nullptr, *called = nullptr;
    int command = -1, inner = -1;
    const cleave::program::Command *at() const;
  };
  void execute(cleave::Rank &rank);
  void walk(cleave::Rank &rank, Place &place);
  std::string describe(const Place &place, const std::string &what) const;
  std::string nextCollective(const Place &place) const;
  void recordFailure(cleave_status status, int rank, const std::string &message,
                     const Place &place);
  void recordFailure(const cleave::Failure &found);
  void blameTheLast();
  void watchTheLast(); // records a rank for which others wait
  void injected(cleave::Rank &rank, int command);

  const double timeoutSeconds;
  const bool poison;
  cleave::World *const world;             // NULL: local
  std::unique_ptr<cleave::Remote> remote; // in the host of several processes

  // Guards the following fields and `failure`.
  std::mutex mutex;
  std::condition_variable wakeRanks, wakeCaller;
  Job job = Job::Idle;
  uint64_t turn = 0; // counts dispatched jobs
  int busy = 0;
  std::vector<bool> isWorking;                     // by rank
  std::chrono::steady_clock::time_point firstDone; // first rank done, this turn
  std::string_view action;
  bool isLost = false, isAborted = false;
  int64_t runs = 0;
  bool isTracing = false;
  std::vector<cleave::Trace> traces; // by rank
  struct Injection {
    int rank = -1, command = 0;
    int64_t run = 0;
    bool hang = false;
  } injection;

  std::vector<std::thread> threads;
};

#endif // CLEAVE_RUNTIME_SESSION_H
