// The CUDA backend of a rank, and the transports between ranks on CUDA devices.
#ifndef CLEAVE_RUNTIME_CUDA_BACKEND_H
#define CLEAVE_RUNTIME_CUDA_BACKEND_H

#include "backends.h"
#include "device.h"

#include <string_view>

namespace cleave::cuda {

// What a transport needs to know of a rank: the rank's device, and the stream
// on which its commands are enqueued.
struct RankStream {
  Device *device = nullptr;
  CUstream compute = nullptr;
};

// Creates the backends. Ranks are assigned to devices in turn. Throws
// UNSUPPORTED if there is no device, or if the artifact has no kernels for it.
// Throws OUT_OF_MEMORY, before anything is allocated, if a device has less
// memory than its ranks need.
std::vector<std::unique_ptr<Backend>> makeBackends(cleave_program &program,
                                                   const SessionShape &shape);

// Creates the transport `kind`: "local", "nccl" or "auto". If other processes
// take part (`neighbours`), it must be "nccl".
std::unique_ptr<Transport>
makeTransport(std::string_view kind, const TransportOptions &options,
              const SessionShape &shape, Counters &counters,
              const Neighbours &neighbours,
              const std::vector<std::unique_ptr<Backend>> &backends);

// The transport of ranks that are threads of this process. They read each
// other's memory, on one device or on several with peer access. `ranks` has the
// streams of the ranks from rank `first` on.
std::unique_ptr<Transport> makeLocalTransport(const TransportOptions &options,
                                              Counters &counters, int first,
                                              std::vector<RankStream> ranks);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_BACKEND_H
