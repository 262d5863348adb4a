// Creates and destroys NCCL communicators.

#include "nccl_communicator.h"

#include "error.h"

#include <chrono>
#include <cstring>
#include <thread>

using namespace cleave;
using namespace cleave::cuda;

// Creation runs on a separate thread, because NCCL blocks until all members
// have joined. The thread may outlive the communicator if a member is lost.
struct NcclCommunicator::Making {
  std::atomic<bool> isDone{false};
  ncclComm_t comm = nullptr;
  std::string failure;
  bool isMisuse = false; // NCCL refused the arguments
};

// The connections of a communicator are made on a separate thread, because the
// first message to a member blocks, and the member may be lost. Aborting the
// communicator ends the thread.
struct NcclCommunicator::Connecting {
  std::atomic<bool> isDone{false};
  std::string failure;
  std::thread thread;

  ~Connecting() {
    if (thread.joinable())
      thread.join();
  }
};

NcclCommunicator::NcclCommunicator(std::string key, std::vector<int> members,
                                   int self, const RankStream &rank,
                                   Store &store, NcclGroup *group)
    : key(std::move(key)), members(std::move(members)), group(group),
      transfers(rank), self(self), store(store) {
  if (this->members.size() == 1) {
    isReady = true;
    return;
  }
  if (self == 0) {
    ncclUniqueId id;
    cuda::check(nccl().ncclGetUniqueId(&id), "making a communicator");
    store.set(this->key + "/id", std::string(id.internal, sizeof(id.internal)));
  }
  store.set(this->key + "/here/" + std::to_string(self), "1");
}

// The CUDA graphs that contain the communicator's collectives are destroyed
// already, because ranks are destroyed before their communicators.
NcclCommunicator::~NcclCommunicator() {
  Device &device = *transfers.rank.device;
  device.tryUse();
  if (connecting && !connecting->isDone)
    abort();
  if (ender.joinable())
    ender.join();
  connecting.reset();
  if (ncclComm_t last = comm.exchange(nullptr)) {
    // If no transfer is in flight the communicator is destroyed, else it is
    // aborted.
    if (driver().cuStreamQuery(transfers.stream.get()) == CUDA_SUCCESS)
      (void)nccl().ncclCommDestroy(last);
    else
      (void)nccl().ncclCommAbort(last);
  }
  device.tryUse(); // NCCL may have made another one current
  // Waits until the aborted kernels have left the stream.
  (void)driver().cuStreamSynchronize(transfers.stream.get());
}

std::vector<int> NcclCommunicator::missing() {
  std::vector<int> ranks;
  for (size_t i = 0; i < members.size(); ++i)
    if (!store.get(key + "/here/" + std::to_string(i)))
      ranks.push_back(members[i]);
  return ranks;
}

bool NcclCommunicator::advance() {
  std::lock_guard lock(mutex);
  if (isAborted)
    throw Aborted();
  if (isReady)
    return true;
  if (!making) {
    for (; come < members.size(); ++come)
      if (!store.get(key + "/here/" + std::to_string(come)))
        return false;
    std::string text = store.get(key + "/id").value();
    making = std::make_shared<Making>();
    std::thread([making = making, device = transfers.rank.device,
                 size = static_cast<int>(members.size()), text, self = self] {
      try {
        device->use();
        ncclUniqueId id;
        std::memcpy(id.internal, text.data(), sizeof(id.internal));
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 1;
        ncclResult_t status = nccl().ncclCommInitRankConfig(&making->comm, size,
                                                            id, self, &config);
        making->isMisuse =
            status == ncclInvalidUsage || status == ncclInvalidArgument;
        if (status != ncclSuccess)
          making->failure = std::string(nccl().ncclGetErrorString(status)) +
                            " (" + nccl().ncclGetLastError(nullptr) + ")";
      } catch (const std::exception &error) {
        making->failure = error.what();
      }
      making->isDone = true;
    }).detach();
  }
  if (!making->isDone)
    return false;
  if (!making->failure.empty())
    fail(CLEAVE_RANK_FAILED,
         "making a communicator of ranks " + print(members) + ": " +
             making->failure +
             (making->isMisuse
                  ? "; NCCL wants a device for each rank, and transport "
                    "\"local\" serves ranks that share one"
                  : "; NCCL_DEBUG=INFO tells more"));
  comm = making->comm;
  isReady = true;
  return true;
}

bool NcclCommunicator::connect() {
  std::lock_guard lock(mutex);
  if (isAborted)
    throw Aborted();
  if (!connecting) {
    connecting = std::make_unique<Connecting>();
    connecting->thread =
        std::thread([this, made = comm.load(), &state = *connecting] {
          try {
            sendFirst(made);
          } catch (const std::exception &error) {
            state.failure = error.what();
          }
          state.isDone = true;
        });
  }
  if (!connecting->isDone)
    return false;
  if (!connecting->failure.empty())
    fail(CLEAVE_RANK_FAILED, connecting->failure);
  return true;
}

void NcclCommunicator::sendFirst(ncclComm_t made) {
  transfers.rank.device->use();
  auto size = static_cast<int>(members.size());
  DeviceMemory probe(2 * size, "the first messages of ranks " + print(members));
  std::string what = "connecting ranks " + print(members);
  auto stream = reinterpret_cast<cudaStream_t>(transfers.stream.get());
  bool isPair = key.starts_with("send");
  cuda::check(nccl().ncclGroupStart(), what);
  for (int peer = 0; peer < size; ++peer) {
    if (peer == self)
      continue;
    if (!isPair || self == 0)
      cuda::check(
          nccl().ncclSend(probe.data() + self, 1, ncclInt8, peer, made, stream),
          what);
    if (!isPair || self == 1)
      cuda::check(nccl().ncclRecv(probe.data() + size + peer, 1, ncclInt8, peer,
                                  made, stream),
                  what);
  }
  cuda::check(nccl().ncclGroupEnd(), what);
  cuda::check(driver().cuStreamSynchronize(transfers.stream.get()), what);
}

void NcclCommunicator::reserve(int64_t bytes) {
  if (bytes > 0 && (blocks.empty() || blocks.back().size() < bytes))
    blocks.emplace_back(bytes, "messages between ranks " + print(members));
}

int64_t NcclCommunicator::stagingBytes() const {
  int64_t bytes = 0;
  for (const DeviceMemory &block : blocks)
    bytes += block.size();
  return bytes;
}

// Aborts the communicator by ncclCommAbort, which ends NCCL's kernels at once,
// but then waits until all graphs that contain such kernels are destroyed. This
// happens only when their ranks are destroyed, so ncclCommAbort is called on a
// separate thread.
void NcclCommunicator::abort() {
  if (isAborted.exchange(true))
    return;
  std::unique_lock lock(mutex, std::chrono::seconds(1));
  if (ncclComm_t lost = comm.exchange(nullptr))
    ender = std::thread([lost, device = transfers.rank.device] {
      device->tryUse();
      (void)nccl().ncclCommAbort(lost);
    });
}

void NcclCommunicator::check(const CollectiveCall &call) {
  std::lock_guard lock(mutex);
  if (isAborted)
    throw Aborted();
  ncclResult_t state = ncclSuccess;
  if (ncclComm_t own = comm)
    cuda::check(nccl().ncclCommGetAsyncError(own, &state), describe(call));
  cuda::check(state, describe(call));
}
