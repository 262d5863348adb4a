// The `local` transport: ranks are threads of one process, and in a collective
// each rank reads the memory of its peers between two barriers.

#include "channel.h"
#include "comm_thread.h"
#include "error.h"
#include "group_operation.h"
#include "transport.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>

using namespace cleave;
using program::CollectiveKind;

namespace {
using Clock = std::chrono::steady_clock;

class LocalOperation : public GroupOperation {
public:
  LocalOperation(CollectiveCall given, Group &group, Counters &counters,
                 const TransportOptions &options, Clock::time_point &linkFree)
      : LocalOperation(std::make_shared<const CollectiveCall>(std::move(given)),
                       group, counters, options, linkFree) {}

  void post() override { posted = Clock::now(); }

  // Only records the time. The data is moved in finish() by the thread that
  // calls it: there is no other thread that could move it between start() and
  // finish().
  void start() override {
    if (!posted)
      posted = Clock::now();
  }

  void finish() override {
    mine().calls.fetch_add(1, std::memory_order_relaxed);
    group.calls[call.self] = shared;
    group.begins[call.self] = std::max(posted.value(), linkFree);
    posted.reset();
    group.barrier(call);
    // The transfer on an emulated link begins when all members have posted it,
    // even if their threads wake up later.
    auto begin = *std::max_element(group.begins.begin(), group.begins.end());
    received = 0;
    group.checkCalls(call);
    move();
    group.barrier(call); // until here peers read this rank's memory
    int latencies = call.kind == CollectiveKind::AllReduce ? 2 : 1;
    linkFree = sleepUntil(
        begin, leastSeconds(options, received ? latencies : 0, received));
  }

private:
  LocalOperation(std::shared_ptr<const CollectiveCall> given, Group &group,
                 Counters &counters, const TransportOptions &options,
                 Clock::time_point &linkFree)
      : GroupOperation(*given, group, counters), shared(std::move(given)),
        options(options), linkFree(linkFree), rowSources(size) {}

  void copyRows(char *dst, int64_t dstStride, const char *src,
                int64_t srcStride, int64_t rows, int64_t bytes) override {
    for (int64_t row = 0; row < rows; ++row) {
      char *to = dst + row * dstStride;
      const char *from = src + row * srcStride;
      if (to != from && bytes > 0)
        std::memcpy(to, from, bytes);
    }
  }

  void zero(char *dst, int64_t bytes) override { std::memset(dst, 0, bytes); }

  void reduce(const RowReduction &all) override {
    for (int64_t row = 0; row < all.rows; ++row) {
      for (size_t i = 0; i < all.srcs.size(); ++i)
        rowSources[i] = all.srcs[i] + row * all.srcStride;
      reduceInto(all.dst + row * all.dstStride, rowSources, all.count,
                 call.dtype, call.reduce);
    }
  }

  void retile(const Runs &dst, const ConstRuns &src, int64_t count) override {
    for (int64_t at = 0; at < count;) {
      int64_t srcColumn = at % src.run, dstColumn = at % dst.run;
      int64_t run = std::min(src.run - srcColumn, dst.run - dstColumn);
      int64_t from = at / src.run * src.stride + srcColumn;
      int64_t to = at / dst.run * dst.stride + dstColumn;
      copyRows(dst.at + to * elementSize, 0, src.at + from * elementSize, 0, 1,
               run * elementSize);
      at += run;
    }
  }

  // Copies or reduces the range row by row.
  void box(const program::ExchangePiece &piece, const Part &part,
           const std::vector<const char *> &from,
           const std::vector<int64_t> &srcStrides) override {
    size_t rank = piece.sizes.size();
    int64_t row = rank ? piece.sizes.back() : 1, rows = piece.count() / row;
    std::vector<const char *> at(from.size());
    for (int64_t number = 0; number < rows; ++number) {
      int64_t src = rank ? piece.srcAt.back() : 0;
      int64_t dst = rank ? piece.dstAt.back() : 0;
      int64_t rest = number;
      for (size_t dim = rank; dim-- > 1;) {
        int64_t index = rest % piece.sizes[dim - 1];
        rest /= piece.sizes[dim - 1];
        src += (piece.srcAt[dim - 1] + index) * srcStrides[dim - 1];
        dst += (piece.dstAt[dim - 1] + index) * part.dstStrides[dim - 1];
      }
      for (size_t i = 0; i < from.size(); ++i)
        at[i] = from[i] + src * elementSize;
      char *to = part.dst + dst * elementSize;
      if (at.empty())
        std::memset(to, 0, row * elementSize);
      else if (at.size() == 1)
        std::memcpy(to, at[0], row * elementSize);
      else
        reduceInto(to, at, row, call.dtype, call.reduce);
    }
  }

  int64_t rowsOfMember(int member) override {
    return rowsFrom(call, *group.calls[member], member);
  }

  void betweenRounds() override { group.barrier(call); }

  const std::shared_ptr<const CollectiveCall> shared;
  const TransportOptions &options;
  Clock::time_point &linkFree;             // of this rank; see LocalEndpoint
  std::optional<Clock::time_point> posted; // set by post() or start()
  std::vector<const char *> rowSources;
};

class LocalTransport : public GroupTransport<Channel> {
public:
  using GroupTransport::GroupTransport;
  std::unique_ptr<Endpoint> connect(int rank) override;
};

class LocalEndpoint : public Endpoint {
public:
  explicit LocalEndpoint(LocalTransport &transport) : transport(transport) {}

  std::unique_ptr<Operation> prepare(CollectiveCall call) override {
    if (call.kind == CollectiveKind::SendRecv)
      return transport.channel(call.members[0], call.members[1])
          .prepare(std::move(call), transport.counters);
    Group &group = transport.groupOf(call.members);
    return std::make_unique<LocalOperation>(std::move(call), group,
                                            transport.counters,
                                            transport.options, linkFree);
  }

private:
  LocalTransport &transport;
  Clock::time_point linkFree{}; // end of the last collective on the link
};

std::unique_ptr<Endpoint> LocalTransport::connect(int) {
  auto endpoint = std::make_unique<LocalEndpoint>(*this);
  if (options.commThread)
    return makeCommunicationThread(std::move(endpoint));
  return endpoint;
}
} // namespace

std::unique_ptr<Transport>
cleave::makeLocalTransport(const TransportOptions &options,
                           Counters &counters) {
  return std::make_unique<LocalTransport>(options, counters);
}

Clock::time_point cleave::sleepUntil(Clock::time_point begin, double seconds) {
  auto end = begin + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double>(seconds));
  if (seconds > 0 && Clock::now() < end)
    std::this_thread::sleep_until(end);
  return end;
}

const char *cleave::nameOf(CollectiveKind kind) {
  constexpr const char *names[] = {"all_reduce", "all_gather", "reduce_scatter",
                                   "all_to_all", "permute",    "broadcast",
                                   "exchange",   "send_recv",  "all_to_all_v"};
  return names[static_cast<int>(kind)];
}

int64_t cleave::rowsOf(const CollectiveCall &call, const int64_t *counts,
                       int member) {
  int64_t rows = counts[member];
  for (const Part &part : call.parts)
    if (rows < 0 || rows > part.outer)
      fail(CLEAVE_BAD_PROGRAM,
           describe(call) + " has " + std::to_string(rows) + " rows for rank " +
               std::to_string(call.members[member]) + ", expected 0 to " +
               std::to_string(part.outer));
  return rows;
}

std::string cleave::describe(const CollectiveCall &call) {
  return std::string(nameOf(call.kind)) + " " + call.name;
}

std::string cleave::print(const std::vector<int> &ranks) {
  std::string text;
  for (int rank : ranks)
    text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text.empty() ? "none" : text;
}

RuntimeError cleave::lateness(const CollectiveCall &call, double seconds,
                              std::vector<int> missing) {
  std::sort(missing.begin(), missing.end());
  char number[32];
  snprintf(number, sizeof(number), "%g", seconds);
  return RuntimeError(CLEAVE_TIMEOUT,
                      describe(call) + " over ranks " + print(call.members) +
                          " timed out after " + number +
                          " s: missing ranks: " + print(missing),
                      missing.empty() ? -1 : missing.front());
}
