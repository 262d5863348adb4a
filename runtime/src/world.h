// The processes of a job. Process 0 is the host: it runs the program that the
// user has started, prints and writes. The others serve one rank each
// (worker.cpp) and do what the host says.
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

// How a thread waits for messages, which arrive only while somebody looks:
// first eagerly, then seldom, because others may need the core.
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

  // Joins the other processes at the first call. Throws Error where there is
  // no launcher, no MPI, or another number of processes than it said.
  static World &get();
  // NULL before that.
  static World *joined();

  Wire &wire() { return *link; }
  int rank() const { return link->rank(); }
  int size() const { return link->size(); }

  // Throws an Error that names the first process found to have ended. Looks
  // only now and then, and only at processes of this machine; a launcher ends
  // the job where one dies on another.
  void checkAlive();
  // A process of this machine that has ended.
  bool hasEnded(int rank) const;
  // "process 4711 of rank 2 on node3"
  std::string describe(int rank) const;
  // Of this process among those of its machine: what the launcher says, else in
  // the order of ranks.
  int localRank() const { return local; }
  Board &board() { return *notes; }
  // Cores that this process may count on: those it is bound to, shared with
  // the others that are bound to the same.
  int coresPerRank() const { return cores; }
  // Whether no two ranks share a core.
  bool hasOwnCore() const { return !isCrowded; }

  // Host and workers; see worker.cpp. Sending returns when the memory is free.
  enum Tag { Command = 1, Reply = 2, Data = 3, Note = 4, Beat = 5 };
  void send(int to, Tag tag, const void *data, int64_t bytes);
  void send(int to, Tag tag, const Packet &packet) {
    send(to, tag, packet.bytes.data(),
         static_cast<int64_t>(packet.bytes.size()));
  }
  // In the host: a message that another process keeps waiting for longer, and
  // for a second more per 10 MB, is an Error TIMEOUT, and the job is lost.
  void awaitAtMost(double seconds) { patience = seconds; }
  // In the host, from now on: gives the workers a sign of life.
  void beat();
  // In a worker: from now on, and at first for five minutes, the host may be
  // silent for so long.
  void needHostWithin(double seconds) { hostPatience = seconds; }
  // In a worker: throws an Error TIMEOUT of rank 0 where it was silent for
  // longer. So does whatever waits for the host.
  void needHost();
  // False if there is none.
  bool poll(int from, Tag tag, Packet &packet);
  Packet receive(int from, Tag tag);
  void receive(int from, Tag tag, void *data, int64_t bytes);

  // A run is lost: processes may hang or be gone, so that ending in good order
  // is impossible.
  void lose() { isLost = true; }
  bool lost() const { return isLost; }
  // Ends the job: the host tells the workers with which code. Does not return
  // where the job is lost.
  void finish(int code);
  // In a worker.
  void leave(int code, bool isLost);

private:
  World();
  void meet();
  void finishRequest(Wire::Request &request, int peer, bool isReceive,
                     int64_t most, int64_t *bytes = nullptr);
  Clock::time_point limitOf(int64_t bytes) const;
  [[noreturn]] void needAnswer(int rank); // that has not come
  void needAlive(int rank);               // throws where it has ended

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
