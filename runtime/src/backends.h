// Backends and transports for a session, by the program's device.
#ifndef CLEAVE_RUNTIME_BACKENDS_H
#define CLEAVE_RUNTIME_BACKENDS_H

#include "backend.h"
#include "loaded_program.h"
#include "transport.h"

namespace cleave {

struct SessionShape {
  int first = 0, here = 1; // ranks of this process: [first, first + here)
  int threadsPerRank = 1;
  bool poison = false;
};

// By rank less shape.first. Throws UNSUPPORTED or OUT_OF_MEMORY, with what to
// do, where the machine cannot serve the program.
std::vector<std::unique_ptr<Backend>> makeBackends(cleave_program &program,
                                                   const SessionShape &shape,
                                                   Counters &counters);

// `kind` is that of cleave_session_options, or NULL.
std::unique_ptr<Transport>
makeTransport(const cleave_program &program, const char *kind,
              const TransportOptions &options, const SessionShape &shape,
              Counters &counters, World *world,
              const std::vector<std::unique_ptr<Backend>> &backends);

} // namespace cleave

#endif // CLEAVE_RUNTIME_BACKENDS_H
