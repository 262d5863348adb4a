// Collectives by NCCL, between ranks in threads of one process or in separate
// processes.
#ifndef CLEAVE_RUNTIME_CUDA_NCCL_TRANSPORT_H
#define CLEAVE_RUNTIME_CUDA_NCCL_TRANSPORT_H

#include "backend.h"
#include "store.h"

namespace cleave::cuda {

// Ranks [first, first + ranks.size()) are threads of this process, each with
// its own device, as NCCL requires. `store` is shared by all processes.
//
// Operations only enqueue work, on one stream for each communicator. If all
// members of a communicator are threads of this process, finish() waits until
// all of them have started, and detects late ranks and different collectives.
// Otherwise Endpoint::progress() detects late ranks.
std::unique_ptr<Transport> makeNcclTransport(const TransportOptions &options,
                                             Counters &counters, int first,
                                             std::vector<RankStream> ranks,
                                             std::unique_ptr<Store> store);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_NCCL_TRANSPORT_H
