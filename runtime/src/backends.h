// Selects the backend and the transport of a session by the program's device.
#ifndef CLEAVE_RUNTIME_BACKENDS_H
#define CLEAVE_RUNTIME_BACKENDS_H

#include "backend.h"
#include "loaded_program.h"
#include "transport.h"

#include <string_view>

namespace cleave {

struct SessionShape {
  int first = 0, here = 1; // ranks of this process: [first, first + here)
  int device = 0;          // of rank `first`; later ranks have the next
  int threadsPerRank = 1;
  bool poison = false;
};

// The other processes of a session.
struct Neighbours {
  World *world = nullptr; // NULL: none
  std::string session;    // the session's name, equal in all processes
  // Called periodically while ranks wait for each other. Throws if the job is
  // lost, because the ranks would then wait forever.
  std::function<void()> meanwhile;
};

// The functions that a build with CUDA support provides. They create the
// backends (indexed by rank - shape.first) and a transport between them, and
// throw like the functions of the same names below.
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
// Returns null in builds without the CUDA toolkit. It is defined in
// runtime/cuda.
const DeviceSupport *cudaSupport();

// Returns backends indexed by rank - shape.first. Throws UNSUPPORTED or
// OUT_OF_MEMORY, with advice, if the machine cannot run the program.
std::vector<std::unique_ptr<Backend>> makeBackends(cleave_program &program,
                                                   const SessionShape &shape,
                                                   Counters &counters);

// Throws UNSUPPORTED if the machine has no CUDA device, or if this build does
// not support CUDA.
void needCuda();

// Creates the transport. `kind` is its name from cleave_session_options, or
// NULL.
std::unique_ptr<Transport>
makeTransport(const cleave_program &program, const char *kind,
              const TransportOptions &options, const SessionShape &shape,
              Counters &counters, const Neighbours &neighbours,
              const std::vector<std::unique_ptr<Backend>> &backends);

} // namespace cleave

#endif // CLEAVE_RUNTIME_BACKENDS_H
