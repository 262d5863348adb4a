// The simulated NCCL: communicators, and calls that become operations of
// streams.

#include "hub.h"

#include <cstdlib>
#include <cstring>
#include <map>

using namespace recorder;

namespace {
std::map<std::string, std::shared_ptr<Group>> groups;
thread_local int groupDepth = 0;

struct Pending {
  Call call;
  CUstream stream = nullptr;
};
thread_local std::vector<Pending> pending;
// Communicators that this thread has initialised in the current group call.
thread_local std::vector<Communicator *> joining;

Communicator *find(ncclComm_t handle) {
  return reinterpret_cast<Communicator *>(handle);
}

// NCCL blocks in the call of the first message between two members of a
// communicator, until both members have made this call. If
// CLEAVE_RECORDER_CONNECTS is set, blocks in the same way.
ncclResult_t connect(Recorder &all, std::unique_lock<std::mutex> &lock,
                     const std::vector<Pending> &calls) {
  const bool isOn = std::getenv("CLEAVE_RECORDER_CONNECTS") != nullptr;
  auto isNew = [](const Call &call) {
    return call.isMessage() && call.peer != call.communicator->rank &&
           !call.communicator->group->came.count(
               {call.communicator->rank, call.peer});
  };
  std::vector<const Call *> first;
  for (const Pending &one : calls)
    if (isOn && isNew(one.call))
      first.push_back(&one.call);
  for (const Call *call : first) {
    Communicator &own = *call->communicator;
    own.group->came.insert({own.rank, call->peer});
    Notice came;
    came.kind = Notice::Came;
    came.from = own.rank;
    came.to = call->peer;
    if (own.line)
      own.line->send(came, "", nullptr);
  }
  all.changed.notify_all();
  for (const Call *call : first) {
    Communicator &own = *call->communicator;
    bool came = all.changed.wait_for(
        lock, std::chrono::duration<double>(all.timeout), [&] {
          return own.isAborted || own.group->came.count({call->peer, own.rank});
        });
    if (!came) {
      all.report.error("rank " + std::to_string(own.rank) + " waits for rank " +
                       std::to_string(call->peer) +
                       " in the first message between them, where NCCL "
                       "connects them, and it does not come");
      return ncclSystemError;
    }
    if (own.isAborted)
      return ncclInternalError;
  }
  return ncclSuccess;
}

// Enqueues the calls that one thread made in a group; they are one operation on
// each stream.
ncclResult_t flush() {
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  std::vector<Pending> calls = std::exchange(pending, {});
  if (ncclResult_t status = connect(all, lock, calls); status != ncclSuccess)
    return status;
  while (!calls.empty()) {
    CUstream handle = calls.front().stream;
    Stream *stream = all.stream(handle);
    if (!stream)
      return ncclInvalidArgument;
    auto together = std::make_shared<std::vector<Call>>();
    std::vector<Pending> others;
    for (Pending &one : calls)
      if (one.stream == handle)
        together->push_back(one.call);
      else
        others.push_back(one);
    calls = std::move(others);
    Operation operation;
    std::string name = together->front().text();
    if (together->size() > 1)
      name += " and " + std::to_string(together->size() - 1) + " more";
    operation.who = all.name(*stream, name);
    for (const Call &call : *together) {
      if (call.communicator->device != stream->device)
        all.report.error(operation.who->text() +
                         ": the communicator is of another device");
      for (const Access &access : call.accesses())
        operation.accesses.push_back(access);
      ++(call.isMessage() ? all.report.totals.messages
                          : all.report.totals.collectives);
    }
    operation.meet = [together, who = operation.who] {
      return meet(*together, who);
    };
    all.enqueue(*stream, std::move(operation));
  }
  return ncclSuccess;
}

ncclResult_t call(Call one, ncclComm_t handle, cudaStream_t stream) {
  one.communicator = find(handle);
  if (!handle || one.communicator->isAborted || !one.communicator->isComplete())
    return ncclInvalidUsage;
  if (sizeOf(one.type) == 0)
    return ncclInvalidArgument;
  pending.push_back({one, reinterpret_cast<CUstream>(stream)});
  return groupDepth > 0 ? ncclSuccess : flush();
}
} // namespace

//--- Communicators -----------------------------------------------------------

ncclResult_t ncclGetVersion(int *version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *out) {
  nameId(*out);
  return ncclSuccess;
}

bool Communicator::isComplete() const {
  return !line ? group->isComplete() : line->isJoined;
}

namespace {
// Closes the connection to the hub, the server for communicators with members
// in several processes, if all members turn out to be in one process.
void leaveLine(Communicator &communicator) {
  Line *line = communicator.line.get();
  if (!line || !line->isJoined || line->isSpread)
    return;
  line->close();
  communicator.line.reset();
}

// Waits until all members have joined the communicator. A member that aborts
// the communicator meanwhile leaves the other members waiting; that is not an
// error in the order of operations.
ncclResult_t awaitGroup(Communicator &communicator) {
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  if (!all.changed.wait_for(
          lock, std::chrono::duration<double>(all.timeout),
          [&] { return communicator.isComplete() || communicator.isAborted; }))
    return ncclSystemError;
  leaveLine(communicator);
  return ncclSuccess;
}
} // namespace

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id,
                                    int rank, ncclConfig_t *config) {
  if (!currentDevice || rank < 0 || rank >= size)
    return ncclInvalidArgument;
  auto *made = new Communicator;
  {
    Recorder &all = Recorder::get();
    auto lock = all.lock();
    std::shared_ptr<Group> &group =
        groups[std::string(id.internal, sizeof(id.internal))];
    if (!group)
      group = std::make_shared<Group>(size);
    if (group->size != size || group->members[rank]) {
      all.report.error(
          "rank " + std::to_string(rank) + " joins a communicator of " +
          std::to_string(group->size) + " ranks twice or with another size");
      delete made;
      return ncclInvalidUsage;
    }
    made->group = group;
    made->rank = rank;
    made->device = currentDevice->number;
    made->line = Line::reach(id, rank, size, group);
    if (!made->line) {
      delete made;
      return ncclSystemError;
    }
    group->members[rank] = made;
    all.changed.notify_all();
  }
  *out = reinterpret_cast<ncclComm_t>(made);
  if (config && config->blocking == 0)
    return ncclInProgress;
  if (groupDepth > 0) {
    joining.push_back(made);
    return ncclSuccess;
  }
  return awaitGroup(*made);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t *state) {
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  Communicator &communicator = *find(handle);
  leaveLine(communicator);
  *state = communicator.isComplete() ? ncclSuccess : ncclInProgress;
  return ncclSuccess;
}

// Allocates memory as cuMemAlloc does; the simulated NCCL needs no special
// memory.
ncclResult_t ncclMemAlloc(void **out, size_t bytes) {
  CUdeviceptr at = 0;
  CUresult status = cuMemAlloc(&at, bytes);
  *out = reinterpret_cast<void *>(at);
  return status == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void *at) {
  return cuMemFree(reinterpret_cast<CUdeviceptr>(at)) == CUDA_SUCCESS
             ? ncclSuccess
             : ncclUnhandledCudaError;
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  // The communicator is not deleted, because operations and peers may still
  // refer to it.
  find(handle)->isAborted = true;
  all.advance();
  all.changed.notify_all();
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  all.advance();
  Communicator *communicator = find(handle);
  if (communicator->pending > 0)
    all.report.error("a communicator is destroyed while " +
                     std::to_string(communicator->pending) +
                     " operations on it have not run");
  communicator->isAborted = true;
  if (communicator->line)
    communicator->line->close();
  return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t status) {
  switch (status) {
  case ncclSuccess:
    return "success";
  case ncclInvalidArgument:
    return "invalid argument";
  case ncclInvalidUsage:
    return "invalid usage";
  case ncclInProgress:
    return "in progress";
  case ncclSystemError:
    return "system error";
  default:
    return "another error";
  }
}
const char *ncclGetLastError(ncclComm_t) {
  return "said by the recorder, which stands in for NCCL";
}

ncclResult_t ncclCommRegister(const ncclComm_t, void *at, size_t bytes,
                              void **handle) {
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  Allocation *holder = all.memory.find(at);
  if (!holder || static_cast<char *>(at) + bytes > holder->data + holder->bytes)
    return ncclInvalidArgument;
  *handle = at;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(const ncclComm_t, void *) {
  return ncclSuccess;
}

//--- Calls -------------------------------------------------------------------

ncclResult_t ncclAllReduce(const void *src, void *dst, size_t count,
                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  return call({.kind = Call::AllReduce,
               .src = static_cast<const char *>(src),
               .dst = static_cast<char *>(dst),
               .count = int64_t(count),
               .type = type,
               .op = op},
              comm, stream);
}

ncclResult_t ncclAllGather(const void *src, void *dst, size_t count,
                           ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return call({.kind = Call::AllGather,
               .src = static_cast<const char *>(src),
               .dst = static_cast<char *>(dst),
               .count = int64_t(count),
               .type = type},
              comm, stream);
}

ncclResult_t ncclReduceScatter(const void *src, void *dst, size_t count,
                               ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return call({.kind = Call::ReduceScatter,
               .src = static_cast<const char *>(src),
               .dst = static_cast<char *>(dst),
               .count = int64_t(count),
               .type = type,
               .op = op},
              comm, stream);
}

ncclResult_t ncclBroadcast(const void *src, void *dst, size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return call({.kind = Call::Broadcast,
               .src = static_cast<const char *>(src),
               .dst = static_cast<char *>(dst),
               .count = int64_t(count),
               .type = type,
               .peer = root},
              comm, stream);
}

ncclResult_t ncclSend(const void *src, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t comm, cudaStream_t stream) {
  return call({.kind = Call::Send,
               .src = static_cast<const char *>(src),
               .count = int64_t(count),
               .type = type,
               .peer = peer},
              comm, stream);
}

ncclResult_t ncclRecv(void *dst, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return call({.kind = Call::Receive,
               .dst = static_cast<char *>(dst),
               .count = int64_t(count),
               .type = type,
               .peer = peer},
              comm, stream);
}

ncclResult_t ncclGroupStart() {
  ++groupDepth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (groupDepth == 0)
    return ncclInvalidUsage;
  if (--groupDepth > 0)
    return ncclSuccess;
  for (Communicator *one : std::exchange(joining, {}))
    if (ncclResult_t status = awaitGroup(*one); status != ncclSuccess)
      return status;
  return flush();
}
