// Wire over TCP. Every process has a connection to the host, which forwards
// messages between workers. It is meant for control: few messages, and weights.
#ifndef CLEAVE_RUNTIME_TCP_WIRE_H
#define CLEAVE_RUNTIME_TCP_WIRE_H

#include "sockets.h"
#include "wire.h"

#include <memory>
#include <vector>

namespace cleave {

// In the host, `lines` has a connection to each rank, which is empty for the
// host itself. In a worker its only entry is the connection to the host. A
// thread of the wire sends and receives the messages.
std::unique_ptr<Wire> makeTcpWire(int rank, int size,
                                  std::vector<Socket> lines);

// Connects to the other processes, under a launcher without MPI, and returns
// the wire.
std::unique_ptr<Wire> openTcpWire();
// In the host: starts to listen, unless it already does. Returns false if the
// launcher started no other process.
bool awaitCallers();
// In a host that has not needed the workers: tells them to end with exit code
// `code`.
void dismissCallers(int code);

} // namespace cleave

#endif // CLEAVE_RUNTIME_TCP_WIRE_H
