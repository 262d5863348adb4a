// A rank's communication thread.
//
// Collectives that only start are carried out here, one after the other in the
// order of their starts, while the rank's own thread computes. What both starts
// and ends in one place waits until the thread has nothing left and runs on the
// caller's thread, so the order of a rank's collectives is that of its list on
// whichever thread they run. Transfers between two ranks have an order of their
// own (program::Collective) and pass through.
#ifndef CLEAVE_RUNTIME_COMM_THREAD_H
#define CLEAVE_RUNTIME_COMM_THREAD_H

#include "transport.h"

namespace cleave {

// Wraps an endpoint whose operations move data in finish() alone.
std::unique_ptr<Endpoint>
makeCommunicationThread(std::unique_ptr<Endpoint> endpoint);

} // namespace cleave

#endif // CLEAVE_RUNTIME_COMM_THREAD_H
