// Backends and transports for a session, by the program's device.
#ifndef CLEAVE_RUNTIME_BACKENDS_H
#define CLEAVE_RUNTIME_BACKENDS_H

#include "backend.h"
#include "loaded_program.h"
#include "transport.h"

#include <string_view>

namespace cleave {

struct SessionShape {
  int first = 0, here = 1; // ranks of this process: [first, first + here)
  int device = 0;          // of rank `first`; the others have the next ones
  int threadsPerRank = 1;
  bool poison = false;
};

// The other processes of a session.
struct Neighbours {
  World *world = nullptr; // NULL: none
  std::string session;    // its name, the same in all of them
  // To be called while they are waited for; throws where that is in vain.
  std::function<void()> meanwhile;
};

// What a build does for programs of CUDA devices: backends by rank less
// shape.first, and a transport between them. Functions throw as those below.
struct DeviceSupport {
  void (*need)();
  std::vector<std::unique_ptr<Backend>> (*makeBackends)(cleave_program &program,
                                                        const SessionShape &);
  std::unique_ptr<Transport> (*makeTransport)(
      std::string_view kind, const TransportOptions &options,
      const SessionShape &shape, Counters &counters,
      const Neighbours &neighbours,
      const std::vector<std::unique_ptr<Backend>> &backends);
};
// Null in builds without the CUDA toolkit. runtime/cuda defines it.
const DeviceSupport *cudaSupport();

// By rank less shape.first. Throws UNSUPPORTED or OUT_OF_MEMORY, with what to
// do, where the machine cannot serve the program.
std::vector<std::unique_ptr<Backend>> makeBackends(cleave_program &program,
                                                   const SessionShape &shape,
                                                   Counters &counters);

// Throws UNSUPPORTED where this machine has no CUDA device, or this build
// cannot use one.
void needCuda();

// `kind` is that of cleave_session_options, or NULL.
std::unique_ptr<Transport>
makeTransport(const cleave_program &program, const char *kind,
              const TransportOptions &options, const SessionShape &shape,
              Counters &counters, const Neighbours &neighbours,
              const std::vector<std::unique_ptr<Backend>> &backends);

} // namespace cleave

#endif // CLEAVE_RUNTIME_BACKENDS_H
