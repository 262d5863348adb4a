// What ranks in processes of their own tell each other before NCCL connects
// them.
#ifndef CLEAVE_RUNTIME_CUDA_NEIGHBOURS_H
#define CLEAVE_RUNTIME_CUDA_NEIGHBOURS_H

#include "backends.h"
#include "device.h"
#include "store.h"

namespace cleave::cuda {

// On the board of all processes, under the session's name.
std::unique_ptr<Store> makeWorldStore(const Neighbours &neighbours);

// Returns once every rank has said which device it has. Throws UNSUPPORTED
// where two have the same, TIMEOUT where some say nothing.
void compareDevices(Store &store, const Neighbours &neighbours, double seconds,
                    const Device &own);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_NEIGHBOURS_H
