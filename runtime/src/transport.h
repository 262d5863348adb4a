// The interface for the exchange of data between ranks. There is one Transport
// for each process and session. Each rank has an Endpoint. Before the first
// step, each collective of the rank's program is prepared once, as an
// Operation. The tests in test/unit/Runtime/TransportTest.cpp run on every
// implementation.
#ifndef CLEAVE_RUNTIME_TRANSPORT_H
#define CLEAVE_RUNTIME_TRANSPORT_H

#include "cleave/exchange.h"
#include "cleave/program.h"
#include "counters.h"

#include "error.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace cleave {

// One buffer of a collective with resolved addresses; see program::Transfer.
struct Part {
  char *src = nullptr, *dst = nullptr;
  int64_t count = 0;
  int64_t outer = 1, inner = 0, dstOuter = 1, dstInner = 0;
  // For Exchange: the boxes (rectangular ranges of elements) that this member
  // sends or receives, the number of rounds, and the strides of the source and
  // the target tile in elements. Two members list the boxes that one sends to
  // the other in the same order.
  std::vector<program::ExchangePiece> pieces;
  int rounds = 1;
  std::vector<int64_t> srcStrides, dstStrides;
};

struct CollectiveCall {
  program::CollectiveKind kind = program::CollectiveKind::AllReduce;
  program::ReduceOp reduce = program::ReduceOp::Sum;
  program::DType dtype = program::DType::F32;
  std::vector<int> members; // ranks, in the order of the group; for SendRecv
                            // the sender and the receiver
  int self = 0;             // the caller's index in `members`
  std::vector<Part> parts;
  std::vector<int32_t> sources;                       // Permute
  const int64_t *sent = nullptr, *received = nullptr; // AllToAllV
  int root = 0;                                       // Broadcast
  bool onlyStarts = false; // asynchronous: a later Wait finishes it
  int purpose = 0;         // index in Counters::purposes
  std::string name;        // for messages: purpose and source
};

const char *nameOf(program::CollectiveKind kind);

// For AllToAllV: if `counts` is the array `sent` of the call, returns the
// number of rows that are sent to a member; if it is `received`, the number of
// rows that come from the member. Throws Error if a block does not have that
// many rows.
int64_t rowsOf(const CollectiveCall &call, const int64_t *counts, int member);

// describe() returns a text such as "all_reduce NAME", and lateness() the error
// of the watchdog: "all_reduce NAME over ranks 0, 1 timed out after 5 s:
// missing ranks: 1".
std::string describe(const CollectiveCall &call);
std::string print(const std::vector<int> &ranks);
RuntimeError lateness(const CollectiveCall &call, double seconds,
                      std::vector<int> missing);

// In an all-reduce all parts form one sequence of elements, of which each
// member reduces one chunk of ceil(total / members) elements. Calls body(part,
// begin, end) for the range of each part that is in the chunk of `member`;
// `part` is an index.
template <class Body>
void forChunk(const CollectiveCall &call, int member, Body body) {
  int64_t total = 0;
  for (const Part &part : call.parts)
    total += part.count;
  auto size = static_cast<int64_t>(call.members.size());
  int64_t chunk = (total + size - 1) / size;
  int64_t low = chunk * member, high = std::min(low + chunk, total);
  int64_t base = 0;
  for (size_t i = 0; i < call.parts.size(); ++i) {
    int64_t count = call.parts[i].count;
    int64_t begin = std::max<int64_t>(low - base, 0);
    int64_t end = std::min(high - base, count);
    if (begin < end)
      body(i, begin, end);
    base += count;
  }
}

// A prepared collective. The members of a group must start and finish their
// operations in the same order, except for SendRecv (see program::Collective).
// start() and finish() may block. After finish() the destination is complete
// and the source may be overwritten. Both throw Aborted after
// Transport::abort(). If other members do not arrive in time, they throw Error
// TIMEOUT, which names the missing ranks.
class Operation {
public:
  virtual ~Operation() = default;
  virtual void start() = 0;
  virtual void finish() = 0;
  // Called if another thread will call start() later. It records that the rank
  // has reached this operation.
  virtual void post() {}
  // For devices: returns whether start() and finish() only enqueue work, and
  // need no action of the host in between, so that a CUDA graph may contain
  // them. If so, replayed() must be called after each replay of the graph, to
  // count the transfer.
  virtual bool mayReplay() const { return false; }
  virtual void replayed() {}
};

class Endpoint {
public:
  virtual ~Endpoint() = default;
  // Announces the groups in which the rank will run collectives. It is called
  // before the first collective is prepared, because ranks with different
  // command lists prepare collectives in different orders.
  virtual void announce(std::vector<std::vector<int>> groups) { (void)groups; }
  virtual std::unique_ptr<Operation> prepare(CollectiveCall call) = 0;
  // Called after the last collective is prepared, to exchange information that
  // ranks need about each other before they run. It may wait for all ranks, and
  // throws like operations do.
  virtual void connect() {}
  // Called periodically between start and finish if messages do not progress by
  // themselves, and while the host waits for a device. If an enqueued transfer
  // is lost, it throws like Operation::finish().
  virtual void progress() {}
  // Returns the bytes of memory outside of arenas that messages take.
  virtual int64_t bufferBytes() const { return 0; }
};

class Transport {
public:
  virtual ~Transport() = default;
  virtual std::unique_ptr<Endpoint> connect(int rank) = 0;
  // Wakes all waiting ranks; all later operations throw Aborted.
  virtual void abort() = 0;
};

struct TransportOptions {
  int ranks = 1;
  double timeoutSeconds = 300;
  bool spin = false; // waiting threads spin; each has a core
  // For `local`: a thread of each rank executes asynchronous collectives.
  bool commThread = false;
  // For `local`: the latency and the bandwidth of emulated links. Every message
  // takes at least this time, so that ranks of one process behave like ranks
  // connected by a link (for tests and comparisons).
  double linkLatency = 0;        // seconds
  double linkBytesPerSecond = 0; // 0: no limit
  // For `mpi`: longer messages are sent in pieces.
  int64_t longestMessage = int64_t(1) << 29;
};

// Returns the least time in which an emulated link delivers `bytes`, received
// from all peers together. `latencies` is the number of messages that must
// follow one another, whose latencies add up.
inline double leastSeconds(const TransportOptions &options, int latencies,
                           int64_t bytes) {
  double seconds = latencies * options.linkLatency;
  if (options.linkBytesPerSecond > 0)
    seconds += double(bytes) / options.linkBytesPerSecond;
  return seconds;
}
// Waits until `seconds` after `begin` and returns that time.
std::chrono::steady_clock::time_point
sleepUntil(std::chrono::steady_clock::time_point begin, double seconds);

// Creates a transport whose ranks are threads of this process. The counters
// must outlive the transport.
std::unique_ptr<Transport> makeLocalTransport(const TransportOptions &options,
                                              Counters &counters);

// Creates a transport with one rank per process. The rank is the process's
// index in the world. All processes must create a transport at the same time,
// including those whose index is not below options.ranks.
class World;
std::unique_ptr<Transport> makeMpiTransport(const TransportOptions &options,
                                            Counters &counters, World &world);

// Reduces arrays: dst[i] = srcs[0][i] op srcs[1][i] op ..., in this order. dst
// may be one of the sources. bf16 is accumulated in f32.
void reduceInto(char *dst, const std::vector<const char *> &srcs, int64_t count,
                program::DType dtype, program::ReduceOp op);

} // namespace cleave

#endif // CLEAVE_RUNTIME_TRANSPORT_H
