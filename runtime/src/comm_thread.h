// The communication thread of a rank.
// Asynchronous collectives run on this thread, one after the other in the order
// of their starts, while the rank's own thread computes. A synchronous
// collective waits until the communication thread is idle, and runs on the
// caller's thread. So the order of a rank's collectives is the order of its
// program, whichever thread runs them. Transfers between two ranks (SendRecv)
// need not keep this order (see program::Collective), so they are passed to the
// wrapped endpoint directly.
#ifndef CLEAVE_RUNTIME_COMM_THREAD_H
#define CLEAVE_RUNTIME_COMM_THREAD_H

#include "transport.h"

namespace cleave {

// Wraps an endpoint whose operations move data only in finish().
std::unique_ptr<Endpoint>
makeCommunicationThread(std::unique_ptr<Endpoint> endpoint);

} // namespace cleave

#endif // CLEAVE_RUNTIME_COMM_THREAD_H
