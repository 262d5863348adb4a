// How ranks exchange data. One Transport per process and session; each rank
// has an Endpoint, and each collective of its program becomes an Operation
// once, before the first step. The conformance suite in
// test/unit/Runtime/TransportTest.cpp runs on every implementation.
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
  // For Exchange: the boxes that this member sends or receives, the number of
  // rounds, and the strides of the source and target tile in elements. Two
  // members list the boxes between them in the same order.
  std::vector<program::ExchangePiece> pieces;
  int rounds = 1;
  std::vector<int64_t> srcStrides, dstStrides;
};

struct CollectiveCall {
  program::CollectiveKind kind = program::CollectiveKind::AllReduce;
  program::ReduceOp reduce = program::ReduceOp::Sum;
  program::DType dtype = program::DType::F32;
  std::vector<int> members; // ranks, in the order of the group; of SendRecv
                            // the sender and the receiver
  int self = 0;             // the caller's index in `members`
  std::vector<Part> parts;
  std::vector<int32_t> sources;                       // Permute
  const int64_t *sent = nullptr, *received = nullptr; // AllToAllV
  int root = 0;                                       // Broadcast
  bool onlyStarts = false; // a Wait ends it; other commands run in between
  int purpose = 0;         // index in Counters::purposes
  std::string name;        // for messages: purpose and source
};

const char *nameOf(program::CollectiveKind kind);

// For AllToAllV: if `counts` is the array `sent` of the call, returns the
// number of rows that go to a member; if it is `received`, the number that come
// from the member. Throws Error if a block does not have that many rows.
int64_t rowsOf(const CollectiveCall &call, const int64_t *counts, int member);

// The watchdog's description of a call: "all_reduce NAME over ranks 0, 1 timed
// out after 5 s: missing ranks: 1".
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
// start() and finish() may block; after finish() the destination is complete
// and the source may be overwritten. Both throw Aborted after
// Transport::abort(), and Error with CLEAVE_TIMEOUT naming the missing ranks.
class Operation {
public:
  virtual ~Operation() = default;
  virtual void start() = 0;
  virtual void finish() = 0;
  // Called when another thread will call start() later; it announces that the
  // rank has reached this operation.
  virtual void post() {}
  // For devices: returns whether start() and finish() only enqueue work and
  // need no host in between, so that a CUDA graph may contain them. replayed()
  // must be called after each replay of such a graph, to count the transfer.
  virtual bool mayReplay() const { return false; }
  virtual void replayed() {}
};

class Endpoint {
public:
  virtual ~Endpoint() = default;
  // Announces the groups in which the rank will run collectives, before the
  // first collective is prepared: ranks with different programs prepare in
  // different orders.
  virtual void announce(std::vector<std::vector<int>> groups) { (void)groups; }
  virtual std::unique_ptr<Operation> prepare(CollectiveCall call) = 0;
  // Called after the last collective is prepared, to exchange what ranks need
  // of each other before they run. May wait for all ranks; throws like
  // operations do.
  virtual void connect() {}
  // Called periodically between start and finish if messages do not progress by
  // themselves, and while the host waits for a device. Throws like
  // Operation::finish() if an enqueued transfer is lost.
  virtual void progress() {}
  // Memory beside the arenas that messages take.
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
  bool spin = false; // waiting threads have a core of their own
  // For `local`: a thread of each rank executes asynchronous collectives.
  bool commThread = false;
  // For `local`: every message takes at least the time of this latency and
  // bandwidth, so that ranks of one process behave like ranks connected by a
  // link (for tests and comparisons).
  double linkLatency = 0;        // seconds
  double linkBytesPerSecond = 0; // 0: no limit
  // mpi: longer messages are sent in pieces.
  int64_t longestMessage = int64_t(1) << 29;
};

// The least time that an emulated link takes to deliver `bytes`, received from
// all peers together. `latencies` is the number of messages that must follow
// one another: their latencies add up.
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

// Creates a transport with one rank per process; the rank is the process's
// index in the world. All processes create a transport at the same time,
// including those beyond options.ranks.
class World;
std::unique_ptr<Transport> makeMpiTransport(const TransportOptions &options,
                                            Counters &counters, World &world);

// dst[i] = srcs[0][i] op srcs[1][i] op ..., in this order. dst may be one of
// the sources. bf16 is accumulated in f32.
void reduceInto(char *dst, const std::vector<const char *> &srcs, int64_t count,
                program::DType dtype, program::ReduceOp op);

} // namespace cleave

#endif // CLEAVE_RUNTIME_TRANSPORT_H
