// Information that ranks in separate processes exchange before NCCL connects
// them.
#ifndef CLEAVE_RUNTIME_CUDA_NEIGHBOURS_H
#define CLEAVE_RUNTIME_CUDA_NEIGHBOURS_H

#include "backends.h"
#include "device.h"
#include "store.h"

namespace cleave::cuda {

// Returns a key-value store that the ranks of all processes share. It keeps its
// entries on the board of the job (board.h), a store of small messages that
// each process sends to all others. There each key is prefixed by the session's
// name, because all sessions share the board.
std::unique_ptr<Store> makeWorldStore(const Neighbours &neighbours);

// Waits until every rank has reported its device. Throws UNSUPPORTED if two
// ranks have the same device, and TIMEOUT if ranks do not report in `seconds`
// seconds.
void compareDevices(Store &store, const Neighbours &neighbours, double seconds,
                    const Device &own);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_NEIGHBOURS_H
