// A collective expressed as NCCL calls, with packing and unpacking.
#ifndef CLEAVE_RUNTIME_CUDA_NCCL_CALL_H
#define CLEAVE_RUNTIME_CUDA_NCCL_CALL_H

#include "api.h"
#include "device_moves.h"
#include "routes.h"

#include <vector>

namespace cleave::cuda {

// One rank's part in a collective. NCCL's own collective is used if it supports
// the kind of collective, the element type and the reduction. Otherwise the
// members exchange single messages by ncclSend and ncclRecv. Routes (routes.h)
// plans these messages, as it does for ranks without devices in the transport
// `mpi`.
class NcclCall {
public:
  explicit NcclCall(CollectiveCall given);

  // The bytes of staging memory that packed data needs.
  int64_t stagingBytes() const { return staging; }
  // The bytes that this rank sends and receives; for AllToAllV known only after
  // enqueue().
  int64_t sent() const { return bytesOf(false); }
  int64_t received() const { return bytesOf(true); }

  // An AllToAllV waits here until the host knows its counts of rows; other
  // collectives do not wait.
  void begin(Transfers &transfers);
  // Packs the data, communicates, and unpacks. `comm` is null if the group has
  // only one member.
  void enqueue(ncclComm_t comm, Transfers &transfers, char *stagingAt);

  const CollectiveCall call;

private:
  bool isNative() const;
  int64_t bytesOf(bool isIncoming) const;
  void place();
  int64_t take(int64_t bytes);

  void native(ncclComm_t comm, Transfers &transfers, char *base);
  void messages(Routes::Phase phase, ncclComm_t comm, Transfers &transfers,
                char *base);
  void combine(Transfers &transfers, char *base);
  void reduceChunk(Transfers &transfers);
  void reduceBlocks(Transfers &transfers);
  void assemble(Transfers &transfers, char *base);
  void copyOwn(Transfers &transfers);
  void aim(int64_t offset, const char *own);

  CollectiveCall planned; // with counts of AllToAllV in host memory
  std::vector<int64_t> sentRows, receivedRows;
  const int64_t elementSize;
  const int size;
  Routes routes;
  // Offsets in the staging memory; -1 for data that is not staged.
  // `partStaging` is used if NCCL executes the collective: it has the offset of
  // each buffer of the collective. `parcelStaging` is used if the members
  // exchange messages: it has the offset of each parcel, that is, of the data
  // for or from one member.
  std::vector<int64_t> partStaging, parcelStaging[Routes::phases];
  int64_t ownStaging = 0; // offset for this rank's own boxes of an exchange
  int64_t staging = 0;
  std::vector<const char *> sources;
};

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_NCCL_CALL_H
