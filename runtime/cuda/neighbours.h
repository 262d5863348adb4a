// Information that ranks in separate processes exchange before NCCL connects
// them.
#ifndef CLEAVE_RUNTIME_CUDA_NEIGHBOURS_H
#define CLEAVE_RUNTIME_CUDA_NEIGHBOURS_H

#include "backends.h"
#include "device.h"
#include "store.h"

namespace cleave::cuda {

// Returns a store that the ranks of all processes share. It keeps its entries
// on the job's board (board.h), with the session's name before each key.
std::unique_ptr<Store> makeWorldStore(const Neighbours &neighbours);

// Waits until every rank has reported its device. Throws UNSUPPORTED if two
// ranks have the same device, TIMEOUT if ranks do not report.
void compareDevices(Store &store, const Neighbours &neighbours, double seconds,
                    const Device &own);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_NEIGHBOURS_H
