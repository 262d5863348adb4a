// The processes of a job. Process 0 is the host: it runs the program that the
// user started, prints, and writes files. The other processes are workers,
// which serve one rank each (worker.cpp) and execute the host's requests.
#ifndef CLEAVE_RUNTIME_WORLD_H
#define CLEAVE_RUNTIME_WORLD_H

#include "board.h"
#include "heartbeat.h"
#include "packet.h"
#include "wire.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace cleave {

// Decides how long a thread waits between two polls for a message. Messages
// make progress only while a thread polls. The thread polls continuously at
// first, then rarely, because other threads may need the core.
class Patience {
public:
  explicit Patience(bool spin, int longestMicroseconds = 200)
      : eager(spin ? 4000 : 40), longest(longestMicroseconds) {}
  void wait();

private:
  int round = 0, eager, longest, sleep = 5;
};

class World {
public:
  using Clock = std::chrono::steady_clock;

  // Joins the other processes at the first call. Throws Error if there is no
  // launcher, no MPI, or a number of processes that differs from the
  // launcher's.
  static World &get();
  // Returns the object that get() has created, or NULL before the first call of
  // get().
  static World *joined();

  Wire &wire() { return *link; }
  int rank() const { return link->rank(); }
  int size() const { return link->size(); }

  // Throws an Error that names the first process found to have ended. It checks
  // only now and then, and only processes of this machine; on other machines
  // the launcher ends the job.
  void checkAlive();
  // Returns whether the process of this rank runs on this machine and has
  // ended.
  bool hasEnded(int rank) const;
  // Describes the process of a rank: "process 4711 of rank 2 on node3".
  std::string describe(int rank) const;
  // The index of this process among the processes of its machine. The launcher
  // sets it; otherwise the processes of a machine are numbered in the order of
  // their ranks.
  int localRank() const { return local; }
  Board &board() { return *notes; }
  // The number of cores for this process: the cores that it is bound to,
  // divided by the number of processes bound to the same cores.
  int coresPerRank() const { return cores; }
  // Whether no two ranks share a core.
  bool hasOwnCore() const { return !isCrowded; }

  // The tags of messages between host and workers; see worker.cpp. send()
  // returns when the memory of the message may be reused.
  enum Tag { Command = 1, Reply = 2, Data = 3, Note = 4, Beat = 5 };
  void send(int to, Tag tag, const void *data, int64_t bytes);
  void send(int to, Tag tag, const Packet &packet) {
    send(to, tag, packet.bytes.data(),
         static_cast<int64_t>(packet.bytes.size()));
  }
  // For the host: if a message takes longer than `seconds` (plus a second per
  // 10 MB), send() and receive() throw an error with the status CLEAVE_TIMEOUT,
  // and the job is lost. 0 means no limit.
  void awaitAtMost(double seconds) { patience = seconds; }
  // For the host: starts sending heartbeats to the workers.
  void beat();
  // For workers: from now on the host may be silent for at most `seconds`. The
  // initial limit is five minutes.
  void needHostWithin(double seconds) { hostPatience = seconds; }
  // For workers: throws an error with the status CLEAVE_TIMEOUT for rank 0 if
  // the host has been silent for longer than needHostWithin() allows. All
  // functions that wait for the host call this function.
  void needHost();
  // Receives a message into `packet` if one with this sender and tag has
  // arrived. Otherwise returns false at once.
  bool poll(int from, Tag tag, Packet &packet);
  Packet receive(int from, Tag tag);
  void receive(int from, Tag tag, void *data, int64_t bytes);

  // Marks the job as lost: some processes may hang or have ended, so the job
  // cannot end in an orderly way.
  void lose() { isLost = true; }
  bool lost() const { return isLost; }
  // Ends the job: the host sends the exit code to the workers. Does not return
  // if the job is lost.
  void finish(int code);
  // Ends this process's connections to the other processes. If the job is lost,
  // the process ends at once with the exit code.
  void leave(int code, bool isLost);

private:
  World();
  void meet();
  void finishRequest(Wire::Request &request, int peer, bool isReceive,
                     int64_t most, int64_t *bytes = nullptr);
  Clock::time_point limitOf(int64_t bytes) const;
  [[noreturn]] void needAnswer(int rank); // throws: it has not come
  void needAlive(int rank);               // throws if it has ended

  Wire *link = nullptr;
  int control = 0;
  int cores = 1, local = 0;
  bool isCrowded = false;
  std::atomic<bool> isLost{false};
  bool waitsForHost(int peer) const { return peer == 0 && pulse != nullptr; }

  std::atomic<double> patience{0}; // seconds; 0: without end
  double hostPatience = 300;       // seconds
  struct Process {
    std::string host;
    int64_t pid = 0;
    int watch = -1; // pidfd
  };
  std::vector<Process> processes;
  std::unique_ptr<Board> notes;
  std::unique_ptr<Heart> heart; // in the host
  std::unique_ptr<Pulse> pulse; // in a worker
  std::atomic<Clock::rep> looked{0};
};

} // namespace cleave

#endif // CLEAVE_RUNTIME_WORLD_H
