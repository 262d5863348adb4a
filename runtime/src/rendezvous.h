// How the processes of a job without MPI find each other: the host listens at
// MASTER_ADDR, next to MASTER_PORT, which torchrun itself may use, and the
// others call. What they say to each other then is tcp_wire.h.
#ifndef CLEAVE_RUNTIME_RENDEZVOUS_H
#define CLEAVE_RUNTIME_RENDEZVOUS_H

#include "cleave/launcher.h"
#include "sockets.h"

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace cleave {

// MASTER_ADDR and CLEAVE_PORT, else MASTER_PORT + 1. Throws Error BAD_ARGUMENT
// where they are not as they should be.
struct Address {
  std::string host;
  int port = 0;
  std::string text() const { return host + ":" + std::to_string(port); }
};
Address rendezvousAddress();
// CLEAVE_JOIN_TIMEOUT, else 300. Throws Error BAD_ARGUMENT, too.
double joinSeconds();

// What ends a process that the host needs no more.
struct Dismissed {
  int code = 0;
};

// The host's side. From the start somebody answers, on a thread: whoever has
// been answered knows that the host lives, however long it takes to need them.
// An executable that takes this one's place goes on listening.
class Rendezvous {
public:
  Rendezvous(const Launcher &job, Address address);
  ~Rendezvous();

  // All others, by rank. Throws TIMEOUT, which names those that have not come.
  std::vector<Socket> gather(double seconds);
  // Sends home who comes within that time, or, where nobody does, within
  // `alone` of it: then this process was started without the others.
  void dismiss(int code, double seconds, double alone);

private:
  void answer();
  void look();
  void welcome(const Socket &socket, bool isNeeded, int code,
               const std::string &refusal = "") const;
  std::vector<int> missing() const;
  bool await(double seconds);

  const Launcher job;
  const Address address;
  Socket listener;
  std::mutex mutex;
  bool isEnding = false;
  std::vector<Socket> callers;        // that have not said who they are
  std::vector<Socket> come;           // by rank
  Socket::Clock::time_point beaten{}; // when the last sign of life was given
  std::thread thread;
};

// The side of the others: a line to the host, once it needs them. Throws
// Dismissed, or an Error where the host does not come, or has gone.
Socket reachHost(const Launcher &job, const Address &address, double seconds);

} // namespace cleave

#endif // CLEAVE_RUNTIME_RENDEZVOUS_H
