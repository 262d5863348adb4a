// Implements Wire, the messages between the processes of a job, by MPI calls.
// Two threads of a process call MPI: the thread that exchanges requests and
// replies with the other processes, and the thread that runs the process's
// rank. They rarely need MPI at the same time, so a lock and
// MPI_THREAD_SERIALIZED are enough.

#include "error.h"
#include "wire.h"

#include <cstring>
#include <map>
#include <mpi.h>
#include <mutex>

using namespace cleave;

namespace {
static_assert(sizeof(MPI_Request) <= sizeof(uint64_t));

void check(int code, const char *call) {
  if (code == MPI_SUCCESS)
    return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail(CLEAVE_RANK_FAILED, std::string(call) + ": " + text);
}

MPI_Request unpack(const Wire::Request &request) {
  MPI_Request out;
  std::memcpy(&out, &request.handle, sizeof(out));
  return out;
}

void pack(Wire::Request &request, MPI_Request handle) {
  request.handle = 0;
  std::memcpy(&request.handle, &handle, sizeof(handle));
  request.active = true;
}

class MpiWire : public Wire {
public:
  MpiWire() {
    int provided = 0;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided),
          "MPI_Init_thread");
    if (provided < MPI_THREAD_SERIALIZED)
      fail(CLEAVE_UNSUPPORTED, "this MPI cannot be called from two threads");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &ownRank);
    MPI_Comm_size(MPI_COMM_WORLD, &worldSize);
  }

  int rank() const override { return ownRank; }
  int size() const override { return worldSize; }

  int openChannel() override {
    std::lock_guard lock(mutex);
    Channel &channel = channels[++opened];
    MPI_Request request;
    check(MPI_Comm_idup(MPI_COMM_WORLD, &channel.comm, &request),
          "MPI_Comm_idup");
    pack(channel.opening, request);
    return opened;
  }

  bool channelReady(int index) override {
    std::lock_guard lock(mutex);
    Channel &channel = channels.at(index);
    if (channel.opening.active && testLocked(channel.opening, nullptr))
      MPI_Comm_set_errhandler(channel.comm, MPI_ERRORS_RETURN);
    return !channel.opening.active;
  }

  void closeChannel(int index) override {
    std::lock_guard lock(mutex);
    MPI_Comm_free(&channels.at(index).comm);
    channels.erase(index);
  }

  void send(Request &request, int channel, int to, int tag, const void *data,
            int64_t bytes) override {
    std::lock_guard lock(mutex);
    MPI_Request handle;
    check(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag,
                    channels.at(channel).comm, &handle),
          "MPI_Isend");
    pack(request, handle);
  }

  void receive(Request &request, int channel, int from, int tag, void *data,
               int64_t bytes) override {
    std::lock_guard lock(mutex);
    MPI_Request handle;
    check(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE,
                    from == anyone ? MPI_ANY_SOURCE : from, tag,
                    channels.at(channel).comm, &handle),
          "MPI_Irecv");
    pack(request, handle);
  }

  bool test(Request &request, int64_t *bytes) override {
    std::lock_guard lock(mutex);
    return testLocked(request, bytes);
  }

  void drop(Request &request, bool isReceive) override {
    std::lock_guard lock(mutex);
    if (!request.active)
      return;
    MPI_Request handle = unpack(request);
    if (isReceive)
      MPI_Cancel(&handle);
    MPI_Request_free(&handle);
    request.active = false;
  }

  bool probe(int channel, int from, int tag, int64_t &bytes) override {
    std::lock_guard lock(mutex);
    int there = 0, count = 0;
    MPI_Status status;
    check(MPI_Iprobe(from, tag, channels.at(channel).comm, &there, &status),
          "MPI_Iprobe");
    if (!there)
      return false;
    MPI_Get_count(&status, MPI_BYTE, &count);
    bytes = count;
    return true;
  }

  void close() override { MPI_Finalize(); }

private:
  struct Channel {
    MPI_Comm comm = MPI_COMM_NULL;
    Request opening;
  };

  bool testLocked(Request &request, int64_t *bytes) {
    MPI_Request handle = unpack(request);
    int done = 0;
    MPI_Status status;
    check(MPI_Test(&handle, &done, &status), "MPI_Test");
    if (!done)
      return false;
    request.active = false;
    if (bytes) {
      int count = 0;
      MPI_Get_count(&status, MPI_BYTE, &count);
      *bytes = count;
    }
    return true;
  }

  int ownRank = 0, worldSize = 1, opened = 0;
  std::map<int, Channel> channels;
  std::mutex mutex;
};
} // namespace

extern "C" __attribute__((visibility("default"))) Wire *cleaveOpenMpiWire() {
  return new MpiWire();
}
