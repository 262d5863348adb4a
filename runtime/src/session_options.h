// What a session's options come to on this machine.
#ifndef CLEAVE_RUNTIME_SESSION_OPTIONS_H
#define CLEAVE_RUNTIME_SESSION_OPTIONS_H

#include "cleave/program.h"
#include "cleave/runtime.h"
#include "transport.h"

namespace cleave {

// Seconds after which who waits for another rank gives up.
inline double watchdogOf(const cleave_session_options &options) {
  return options.watchdog_seconds > 0 ? options.watchdog_seconds : 300;
}

// The caller's own watchdog: a rank that waits in a collective knows more of
// what is missing, and is let speak first.
inline double callersWatchdogOf(double timeoutSeconds) {
  return timeoutSeconds + 1;
}

// `world`: NULL where ranks are threads of this process.
int threadsPerRank(const cleave_session_options &options, int ranks,
                   World *world);

// Throws Error where the transport cannot do what the options ask for.
TransportOptions transportOptionsOf(const program::Program &program,
                                    const cleave_session_options &options,
                                    int threadsPerRank, double timeoutSeconds,
                                    World *world);

} // namespace cleave

#endif // CLEAVE_RUNTIME_SESSION_OPTIONS_H
