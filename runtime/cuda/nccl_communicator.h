// A rank's membership in an NCCL communicator: its creation, its stream, and
// its staging memory.
#ifndef CLEAVE_RUNTIME_CUDA_NCCL_COMMUNICATOR_H
#define CLEAVE_RUNTIME_CUDA_NCCL_COMMUNICATOR_H

#include "device_moves.h"
#include "nccl_group.h"
#include "store.h"

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace cleave::cuda {

class NcclCommunicator {
public:
  // `key` is the communicator's name in the store. `group` is null unless all
  // members are threads of this process.
  NcclCommunicator(std::string key, std::vector<int> members, int self,
                   const RankStream &rank, Store &store, NcclGroup *group);
  ~NcclCommunicator();

  // Continues to create the communicator, without blocking: no rank may wait
  // for members that are creating other communicators. Returns true once the
  // communicator can be used.
  bool advance();
  // Returns the members that have not joined the creation yet.
  std::vector<int> missing();
  // Exchanges a byte with each member, and returns true once all bytes have
  // arrived. NCCL connects two ranks when they exchange their first message,
  // and blocks until both ranks take part. If this happened in the middle of a
  // step, two ranks that send to each other in different orders could deadlock.
  bool connect();

  // Provides at least `bytes` bytes of staging memory. Staging memory that was
  // provided earlier stays valid.
  void reserve(int64_t bytes);
  char *staging() const {
    return blocks.empty() ? nullptr : blocks.back().data();
  }
  int64_t stagingBytes() const;

  // Runs body(comm); throws Aborted if the communicator was aborted.
  template <class Body> void use(Body body) {
    std::lock_guard lock(mutex);
    if (isAborted)
      throw Aborted();
    body(comm.load());
  }
  // Ends transfers in flight, and prevents new ones. May be called from any
  // thread. A call of NCCL that waits for a lost member holds the lock until
  // this function aborts the communicator, so this function waits for the lock
  // for only a second and then continues without it.
  void abort();
  // Throws if NCCL has detected a failure.
  void check(const CollectiveCall &call);

  const std::string key;
  const std::vector<int> members;
  NcclGroup *const group;
  Transfers transfers;
  // Collectives that were started before the communicator was ready, in order.
  std::deque<std::function<void()>> waiting;
  // True if members also exchange messages (ncclSend and ncclRecv), in addition
  // to NCCL's own collectives.
  bool sends = false;
  // `last` is the collective that was started last, `starts` the number of
  // collectives started so far.
  const CollectiveCall *last = nullptr;
  int64_t starts = 0;

private:
  void sendFirst(ncclComm_t made);

  struct Making;
  struct Connecting;
  const int self;
  Store &store;
  std::timed_mutex mutex;
  std::atomic<ncclComm_t> comm = nullptr;
  std::atomic<bool> isAborted = false;
  bool isReady = false;
  size_t come = 0; // number of members known to have joined
  std::shared_ptr<Making> making;
  std::unique_ptr<Connecting> connecting;
  std::vector<DeviceMemory> blocks;
  std::thread ender; // aborts `comm` after a failure
};

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_NCCL_COMMUNICATOR_H
