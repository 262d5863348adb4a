// The wire over TCP: every process has a line to the host, which hands on what
// others send to each other. It is for control: few messages, and weights.
#ifndef CLEAVE_RUNTIME_TCP_WIRE_H
#define CLEAVE_RUNTIME_TCP_WIRE_H

#include "sockets.h"
#include "wire.h"

#include <memory>
#include <vector>

namespace cleave {

// In the host `lines` are those of all ranks, its own empty; elsewhere the only
// one is that to the host. Messages move on a thread of the wire's own.
std::unique_ptr<Wire> makeTcpWire(int rank, int size,
                                  std::vector<Socket> lines);

// Under a launcher that brings no MPI: finds the others first.
std::unique_ptr<Wire> openTcpWire();
// In the host: begins to listen, if it has not yet. False where there is
// nobody to listen for.
bool awaitCallers();
// In a host that has not needed the others: sends them home.
void dismissCallers(int code);

} // namespace cleave

#endif // CLEAVE_RUNTIME_TCP_WIRE_H
