// Connects the processes of a job without MPI. The host listens at MASTER_ADDR
// on the port after MASTER_PORT (torchrun may use MASTER_PORT itself), and the
// workers connect to it. After that they communicate through tcp_wire.h.
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

// The host's address: MASTER_ADDR, and CLEAVE_PORT or else MASTER_PORT + 1.
// Throws Error BAD_ARGUMENT if they are malformed.
struct Address {
  std::string host;
  int port = 0;
  std::string text() const { return host + ":" + std::to_string(port); }
};
Address rendezvousAddress();
// CLEAVE_JOIN_TIMEOUT in seconds, default 300. Throws Error BAD_ARGUMENT if it
// is malformed.
double joinSeconds();

// Thrown in a worker that the host no longer needs; ends the process.
struct Dismissed {
  int code = 0;
};

// The host's side. A thread answers workers from the start, so that they know
// that the host is alive, however long it takes until it needs them. An
// executable that replaces this one by exec keeps the listening socket.
class Rendezvous {
public:
  Rendezvous(const Launcher &job, Address address);
  ~Rendezvous();

  // Returns the connections to all workers, by rank. Throws TIMEOUT that names
  // the ranks that have not connected.
  std::vector<Socket> gather(double seconds);
  // Dismisses workers that connect within `seconds`. If none has connected
  // within `alone`, returns early: this process was started without workers.
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

// The worker's side: connects to the host and waits until the host needs it.
// Throws Dismissed, or an Error if the host does not appear or is gone.
Socket reachHost(const Launcher &job, const Address &address, double seconds);

} // namespace cleave

#endif // CLEAVE_RUNTIME_RENDEZVOUS_H
