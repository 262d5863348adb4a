// Collectives by NCCL, between ranks in threads of one process or in processes
// of their own.
#ifndef CLEAVE_RUNTIME_CUDA_NCCL_TRANSPORT_H
#define CLEAVE_RUNTIME_CUDA_NCCL_TRANSPORT_H

#include "backend.h"
#include "store.h"

namespace cleave::cuda {

// Ranks [first, first + ranks.size()) are threads of this process, each with a
// device of its own, as NCCL wants it. `store` is that of all processes.
//
// Operations only enqueue, on a stream for each communicator. Where all members
// are threads of this process finish() waits until all have started, and finds
// who is late and who disagrees; else Endpoint::progress() finds who is late.
std::unique_ptr<Transport> makeNcclTransport(const TransportOptions &options,
                                             Counters &counters, int first,
                                             std::vector<RankStream> ranks,
                                             std::unique_ptr<Store> store);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_NCCL_TRANSPORT_H
