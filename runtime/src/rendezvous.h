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

// The host's address: MASTER_ADDR, and the port CLEAVE_PORT or else MASTER_PORT
// + 1. rendezvousAddress() throws Error BAD_ARGUMENT if a variable is
// malformed.
struct Address {
  std::string host;
  int port = 0;
  std::string text() const { return host + ":" + std::to_string(port); }
};
Address rendezvousAddress();
// Returns CLEAVE_JOIN_TIMEOUT in seconds, by default 300. Throws Error
// BAD_ARGUMENT if it is malformed.
double joinSeconds();

// Thrown in a worker that the host does not need any more. The process then
// ends with the exit code `code`.
struct Dismissed {
  int code = 0;
};

// The host's side. From the start, a thread answers workers, so that they know
// that the host is alive, however long the host takes until it needs them. If
// this executable replaces itself by exec, the new one keeps the listening
// socket.
class Rendezvous {
public:
  Rendezvous(const Launcher &job, Address address);
  ~Rendezvous();

  // Returns the connections to all workers, by rank. Throws TIMEOUT that names
  // the ranks that have not connected.
  std::vector<Socket> gather(double seconds);
  // Tells workers that connect within `seconds` to end with exit code `code`.
  // Returns early if none has connected within `alone` seconds: this process
  // was then started without workers.
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
  std::vector<Socket> callers;        // connections that have sent no Call
  std::vector<Socket> come;           // connections to workers, by rank
  Socket::Clock::time_point beaten{}; // when the last sign of life was given
  std::thread thread;
};

// The worker's side: connects to the host and waits until the host needs it.
// Throws Dismissed, or an Error if the host does not appear or is gone.
Socket reachHost(const Launcher &job, const Address &address, double seconds);

} // namespace cleave

#endif // CLEAVE_RUNTIME_RENDEZVOUS_H
