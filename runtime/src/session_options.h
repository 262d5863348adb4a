// Resolves the options of a session for this machine.
#ifndef CLEAVE_RUNTIME_SESSION_OPTIONS_H
#define CLEAVE_RUNTIME_SESSION_OPTIONS_H

#include "cleave/program.h"
#include "cleave/runtime.h"
#include "transport.h"

namespace cleave {

// Returns the number of seconds after which a rank that waits for another rank
// gives up.
inline double watchdogOf(const cleave_session_options &options) {
  return options.watchdog_seconds > 0 ? options.watchdog_seconds : 300;
}

// Returns the timeout of the thread that waits for an action. It is longer than
// the timeout of ranks that wait in a collective, because these know which
// ranks are missing and should report first.
inline double callersWatchdogOf(double timeoutSeconds) {
  return timeoutSeconds + 1;
}

// Returns the number of threads of each rank: the number in the options or, if
// it is 0, the number of cores per rank. `world` has the processes of the job;
// it is NULL if all ranks are threads of this process.
int threadsPerRank(const cleave_session_options &options, int ranks,
                   World *world);

// Returns the options of the transport. Throws Error if the transport does not
// support the requested options.
TransportOptions transportOptionsOf(const program::Program &program,
                                    const cleave_session_options &options,
                                    int threadsPerRank, double timeoutSeconds,
                                    World *world);

} // namespace cleave

#endif // CLEAVE_RUNTIME_SESSION_OPTIONS_H
