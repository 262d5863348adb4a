// The `local` transport: ranks are threads of one process, and a collective
// reads the memory of its peers between barriers. Every element is reduced by
// one rank, in the order of the group, so replicas are bit-identical and runs
// are reproducible.

#include "channel.h"
#include "comm_thread.h"
#include "error.h"
#include "group.h"
#include "transport.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

using namespace cleave;
using program::CollectiveKind;

namespace {
using Clock = std::chrono::steady_clock;

class LocalOperation : public Operation {
public:
  LocalOperation(CollectiveCall call, Group &group, Counters &counters,
                 const TransportOptions &options, Clock::time_point &linkFree)
      : shared(std::make_shared<const CollectiveCall>(std::move(call))),
        call(*shared), group(group), counters(counters), options(options),
        linkFree(linkFree), elementSize(program::sizeOf(this->call.dtype)),
        size(static_cast<int>(group.members.size())),
        sources(group.members.size()) {}

  void post() override { posted = Clock::now(); }

  // The data moves in finish(), as no other thread would copy it earlier.
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
    // An emulated link is busy from the moment that both sides have posted,
    // even if threads wake up late.
    auto begin = *std::max_element(group.begins.begin(), group.begins.end());
    received = 0;
    group.checkCalls(call);
    switch (call.kind) {
    case CollectiveKind::AllReduce:
      allReduce();
      break;
    case CollectiveKind::AllGather:
      for (size_t part = 0; part < call.parts.size(); ++part)
        allGather(part);
      break;
    case CollectiveKind::ReduceScatter:
      for (size_t part = 0; part < call.parts.size(); ++part)
        reduceScatter(part);
      break;
    case CollectiveKind::AllToAll:
      for (size_t part = 0; part < call.parts.size(); ++part)
        allToAll(part);
      break;
    case CollectiveKind::AllToAllV:
      for (size_t part = 0; part < call.parts.size(); ++part)
        allToAllV(part);
      break;
    case CollectiveKind::Permute:
      for (size_t part = 0; part < call.parts.size(); ++part)
        receiveWhole(part, call.sources[call.self]);
      break;
    case CollectiveKind::Broadcast:
      for (size_t part = 0; part < call.parts.size(); ++part)
        receiveWhole(part, call.root);
      break;
    case CollectiveKind::Exchange:
      exchange();
      break;
    case CollectiveKind::SendRecv:
      break; // goes through a channel
    }
    group.barrier(call); // peers may read our memory until here
    int latencies = call.kind == CollectiveKind::AllReduce ? 2 : 1;
    linkFree = sleepUntil(
        begin, leastSeconds(options, received ? latencies : 0, received));
  }

private:
  Counters::Entry &mine() {
    return counters.at(group.members[call.self], call.purpose);
  }

  // Counts bytes that this rank reads from the memory of member `owner`.
  void book(int owner, int64_t bytes) {
    if (owner == call.self)
      return;
    received += bytes;
    mine().received.fetch_add(bytes, std::memory_order_relaxed);
    counters.at(group.members[owner], call.purpose)
        .sent.fetch_add(bytes, std::memory_order_relaxed);
  }

  void read(int owner, char *dst, const char *src, int64_t bytes) {
    if (dst != src)
      std::memcpy(dst, src, bytes);
    book(owner, bytes);
  }

  const Part &partOf(int member, size_t part) const {
    return group.calls[member]->parts[part];
  }

  // A reduce-scatter, then an all-gather. A peer reads chunk p of our source
  // only if it is member p, so writing our own chunk in place is safe.
  void allReduce() {
    forChunk(call, call.self, [&](size_t part, int64_t begin, int64_t end) {
      for (int p = 0; p < size; ++p) {
        sources[p] = partOf(p, part).src + begin * elementSize;
        book(p, (end - begin) * elementSize);
      }
      reduceInto(call.parts[part].dst + begin * elementSize, sources,
                 end - begin, call.dtype, call.reduce);
    });
    group.barrier(call);
    for (int step = 1; step < size; ++step) {
      int p = (call.self + step) % size;
      forChunk(call, p, [&](size_t part, int64_t begin, int64_t end) {
        read(p, call.parts[part].dst + begin * elementSize,
             partOf(p, part).dst + begin * elementSize,
             (end - begin) * elementSize);
      });
    }
  }

  void allGather(size_t index) {
    const Part &part = call.parts[index];
    int64_t row = part.inner * elementSize;
    for (int step = 0; step < size; ++step) {
      int p = (call.self + step) % size;
      for (int64_t o = 0; o < part.outer; ++o)
        read(p, part.dst + (o * size + p) * row, partOf(p, index).src + o * row,
             row);
    }
  }

  void reduceScatter(size_t index) {
    const Part &part = call.parts[index];
    int64_t row = part.inner * elementSize;
    for (int64_t o = 0; o < part.outer; ++o) {
      for (int p = 0; p < size; ++p) {
        sources[p] = partOf(p, index).src + (o * size + call.self) * row;
        book(p, row);
      }
      reduceInto(part.dst + o * row, sources, part.inner, call.dtype,
                 call.reduce);
    }
  }

  void allToAll(size_t index) {
    const Part &part = call.parts[index];
    for (int step = 0; step < size; ++step) {
      int p = (call.self + step) % size;
      const char *src = partOf(p, index).src;
      // The block is one sequence of elements, divided into rows of `inner`
      // elements at the sender and rows of `dstInner` elements here.
      for (int64_t at = 0; at < part.count;) {
        int64_t srcColumn = at % part.inner, dstColumn = at % part.dstInner;
        int64_t run =
            std::min(part.inner - srcColumn, part.dstInner - dstColumn);
        int64_t srcAt =
            (at / part.inner * size + call.self) * part.inner + srcColumn;
        int64_t dstAt =
            (at / part.dstInner * size + p) * part.dstInner + dstColumn;
        read(p, part.dst + dstAt * elementSize, src + srcAt * elementSize,
             run * elementSize);
        at += run;
      }
    }
  }

  void allToAllV(size_t index) {
    const Part &part = call.parts[index];
    for (int step = 0; step < size; ++step) {
      int p = (call.self + step) % size;
      const CollectiveCall &peer = *group.calls[p];
      int64_t rows = rowsFrom(call, peer, p);
      read(p, part.dst + p * part.count * elementSize,
           partOf(p, index).src + call.self * part.count * elementSize,
           rows * part.inner * elementSize);
    }
  }

  void receiveWhole(size_t index, int from) {
    const Part &part = call.parts[index];
    if (part.count == 0)
      return; // with no memory
    if (from < 0)
      std::memset(part.dst, 0, part.count * elementSize);
    else
      read(from, part.dst, partOf(from, index).src, part.count * elementSize);
  }

  void exchange() {
    int rounds = 1;
    for (size_t index = 0; index < call.parts.size(); ++index) {
      rounds = std::max(rounds, call.parts[index].rounds);
      exchange(index, 0);
    }
    if (rounds == 1)
      return;
    group.barrier(call);
    for (size_t index = 0; index < call.parts.size(); ++index)
      exchange(index, 1);
  }

  // Assembles our tile from boxes, row by row. In the second round the boxes
  // come from tiles that other members assembled in the first.
  void exchange(size_t index, int round) {
    const Part &part = call.parts[index];
    for (const program::ExchangePiece &piece : part.pieces) {
      if (piece.receiver != call.self || piece.round != round)
        continue;
      const std::vector<int64_t> &strides =
          round ? part.dstStrides : part.srcStrides;
      size_t rank = piece.sizes.size();
      int64_t row = rank ? piece.sizes.back() : 1, rows = piece.count() / row;
      std::vector<const char *> from(piece.senders.size());
      for (int64_t number = 0; number < rows; ++number) {
        int64_t src = rank ? piece.srcAt.back() : 0;
        int64_t dst = rank ? piece.dstAt.back() : 0;
        int64_t rest = number;
        for (size_t dim = rank; dim-- > 1;) {
          int64_t at = rest % piece.sizes[dim - 1];
          rest /= piece.sizes[dim - 1];
          src += (piece.srcAt[dim - 1] + at) * strides[dim - 1];
          dst += (piece.dstAt[dim - 1] + at) * part.dstStrides[dim - 1];
        }
        for (size_t i = 0; i < from.size(); ++i) {
          const Part &sender = partOf(piece.senders[i], index);
          from[i] = (round ? sender.dst : sender.src) + src * elementSize;
          book(piece.senders[i], row * elementSize);
        }
        char *to = part.dst + dst * elementSize;
        if (from.empty())
          std::memset(to, 0, row * elementSize);
        else if (from.size() == 1)
          std::memcpy(to, from[0], row * elementSize);
        else
          reduceInto(to, from, row, call.dtype, call.reduce);
      }
    }
  }

  const std::shared_ptr<const CollectiveCall> shared;
  const CollectiveCall &call;
  Group &group;
  Counters &counters;
  const TransportOptions &options;
  Clock::time_point &linkFree;             // of this rank
  std::optional<Clock::time_point> posted; // since the last time
  const int64_t elementSize;
  int64_t received = 0; // bytes, this time
  const int size;
  std::vector<const char *> sources;
};

class LocalTransport : public Transport {
public:
  LocalTransport(const TransportOptions &options, Counters &counters)
      : options(options), counters(counters) {}

  std::unique_ptr<Endpoint> connect(int rank) override;

  void abort() override {
    std::lock_guard lock(mutex);
    aborted = true;
    for (auto &[members, group] : groups)
      group->abort();
    for (auto &[ranks, channel] : channels)
      channel->abort();
  }

  Channel &channel(int from, int to) {
    std::lock_guard lock(mutex);
    std::unique_ptr<Channel> &channel = channels[{from, to}];
    if (!channel) {
      channel = std::make_unique<Channel>(options);
      if (aborted)
        channel->abort();
    }
    return *channel;
  }

  Group &groupOf(const std::vector<int> &members) {
    std::lock_guard lock(mutex);
    std::unique_ptr<Group> &group = groups[members];
    if (!group) {
      group = std::make_unique<Group>(members, options);
      if (aborted)
        group->abort();
    }
    return *group;
  }

  const TransportOptions options;
  Counters &counters;

private:
  std::mutex mutex;
  std::map<std::vector<int>, std::unique_ptr<Group>> groups;
  std::map<std::pair<int, int>, std::unique_ptr<Channel>> channels;
  bool aborted = false;
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
  Clock::time_point linkFree{}; // when the last collective's message is over
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
