// The communication thread of a rank. It runs asynchronous collectives one
// after the other, in the order of their starts, while the rank's own thread
// computes. A synchronous collective waits until the communication thread is
// idle, and runs on the caller's thread. So a rank's collectives run in the
// order of its command list, regardless of their threads. Transfers between two
// ranks (SendRecv) need not keep this order (see program::Collective), so they
// are passed directly to the wrapped endpoint.
#ifndef CLEAVE_RUNTIME_COMM_THREAD_H
#define CLEAVE_RUNTIME_COMM_THREAD_H

#include "transport.h"

namespace cleave {

// Wraps an endpoint whose operations move data only in finish().
std::unique_ptr<Endpoint>
makeCommunicationThread(std::unique_ptr<Endpoint> endpoint);

} // namespace cleave

#endif // CLEAVE_RUNTIME_COMM_THREAD_H
