// The `local` transport of ranks on devices: ranks are threads, and each reads
// what the others have.
//
// Threads meet at barriers only to know each other's events; the data moves on
// a stream of transfers that each rank has. What a member reads is ready after
// the others' `ready` events, and may be overwritten after all have passed
// `read`. Every element is reduced by one rank, in the order of the group, so
// replicas are bit-identical and runs repeat exactly.

#include "cuda/backend.h"

#include "device_channel.h"
#include "device_moves.h"
#include "group.h"

#include <map>
#include <mutex>

using namespace cleave;
using namespace cleave::cuda;
using program::CollectiveKind;

namespace {
// A member's call, with the events that others wait for.
struct DeviceCall : CollectiveCall {
  DeviceCall(CollectiveCall call)
      : CollectiveCall(std::move(call)), ready(makeEvent()),
        halfway(makeEvent()), read(makeEvent()), done(makeEvent()) {}
  const Event ready;   // src is complete, dst may be written
  const Event halfway; // between two rounds
  const Event read;    // the member has read what the others have
  const Event done;
};

class DeviceOperation : public Operation {
public:
  DeviceOperation(CollectiveCall given, Group &group, Counters &counters,
                  Transfers &transfers)
      : shared(std::make_shared<DeviceCall>(std::move(given))), call(*shared),
        group(group), counters(counters), transfers(transfers),
        elementSize(program::sizeOf(call.dtype)),
        size(static_cast<int>(group.members.size())) {}

  void start() override {
    check(driver().cuEventRecord(call.ready.get(), transfers.rank.compute),
          "starting " + describe(call));
  }

  void finish() override {
    mine().calls.fetch_add(1, std::memory_order_relaxed);
    group.calls[call.self] = shared;
    group.barrier(call);
    group.checkCalls(call);
    waitForAll(&DeviceCall::ready);
    transfers.begin(call);
    switch (call.kind) {
    case CollectiveKind::AllReduce:
      allReduce();
      break;
    case CollectiveKind::AllGather:
      each(&DeviceOperation::allGather);
      break;
    case CollectiveKind::ReduceScatter:
      each(&DeviceOperation::reduceScatter);
      break;
    case CollectiveKind::AllToAll:
      each(&DeviceOperation::allToAll);
      break;
    case CollectiveKind::AllToAllV:
      allToAllV();
      break;
    case CollectiveKind::Permute:
    case CollectiveKind::Broadcast:
      each(&DeviceOperation::receiveWhole);
      break;
    case CollectiveKind::Exchange:
      exchange();
      break;
    case CollectiveKind::SendRecv:
      break; // goes through a channel
    }
    record(call.read);
    group.barrier(call);
    waitForAll(&DeviceCall::read);
    after(transfers.stream.get(), call.done.get(), transfers.rank.compute);
    group.barrier(call); // events are not recorded again until here
  }

private:
  Counters::Entry &mine() {
    return counters.at(group.members[call.self], call.purpose);
  }

  // Counts bytes that this rank reads from the memory of member `owner`.
  void book(int owner, int64_t bytes) {
    if (owner == call.self)
      return;
    mine().received.fetch_add(bytes, std::memory_order_relaxed);
    counters.at(group.members[owner], call.purpose)
        .sent.fetch_add(bytes, std::memory_order_relaxed);
  }

  const DeviceCall &peer(int member) const {
    return static_cast<const DeviceCall &>(*group.calls[member]);
  }
  const Part &partOf(int member, size_t part) const {
    return group.calls[member]->parts[part];
  }

  void record(const Event &event) {
    check(driver().cuEventRecord(event.get(), transfers.stream.get()),
          describe(call));
  }
  void waitForAll(const Event DeviceCall::*event) {
    for (int p = 0; p < size; ++p)
      check(driver().cuStreamWaitEvent(transfers.stream.get(),
                                       (peer(p).*event).get(), 0),
            describe(call));
  }
  // Makes the second round of all members wait for the first.
  void halfway() {
    record(call.halfway);
    group.barrier(call);
    waitForAll(&DeviceCall::halfway);
  }

  void each(void (DeviceOperation::*move)(size_t)) {
    for (size_t part = 0; part < call.parts.size(); ++part)
      (this->*move)(part);
  }

  // A reduce-scatter, then an all-gather. A peer reads chunk p of our source
  // only if it is member p, so writing our own chunk in place is safe.
  void allReduce() {
    forChunk(call, call.self, [&](size_t part, int64_t begin, int64_t end) {
      Reduction all;
      for (int p = 0; p < size; ++p) {
        all.srcs.push_back(partOf(p, part).src + begin * elementSize);
        book(p, (end - begin) * elementSize);
      }
      all.dst = call.parts[part].dst + begin * elementSize;
      all.count = end - begin;
      transfers.reduce(all, call);
    });
    halfway();
    for (int step = 1; step < size; ++step) {
      int p = (call.self + step) % size;
      forChunk(call, p, [&](size_t part, int64_t begin, int64_t end) {
        int64_t bytes = (end - begin) * elementSize;
        book(p, bytes);
        transfers.copy(call.parts[part].dst + begin * elementSize,
                       partOf(p, part).dst + begin * elementSize, bytes);
      });
    }
  }

  void allGather(size_t index) {
    const Part &part = call.parts[index];
    int64_t row = part.inner * elementSize;
    for (int step = 0; step < size; ++step) {
      int p = (call.self + step) % size;
      book(p, part.outer * row);
      transfers.copy2d(part.dst + p * row, size * row, partOf(p, index).src,
                       row, part.outer, row);
    }
  }

  void reduceScatter(size_t index) {
    const Part &part = call.parts[index];
    int64_t row = part.inner * elementSize;
    Reduction all;
    for (int p = 0; p < size; ++p) {
      all.srcs.push_back(partOf(p, index).src + call.self * row);
      book(p, part.outer * row);
    }
    all.dst = part.dst;
    all.rows = part.outer;
    all.count = part.inner;
    all.dstStride = row;
    all.srcStride = size * row;
    transfers.reduce(all, call);
  }

  void allToAll(size_t index) {
    const Part &part = call.parts[index];
    for (int step = 0; step < size; ++step) {
      int p = (call.self + step) % size;
      book(p, part.count * elementSize);
      transfers.retile(
          {part.dst + p * part.dstInner * elementSize, part.dstInner,
           size * part.dstInner},
          {partOf(p, index).src + call.self * part.inner * elementSize,
           part.inner, size * part.inner},
          part.count, elementSize);
    }
  }

  // The number of received rows is known only on the device.
  void allToAllV() {
    CollectiveCall own = call;
    std::vector<int64_t> received = transfers.read(call.received, size);
    own.received = received.data();
    for (int step = 0; step < size; ++step) {
      int p = (call.self + step) % size;
      CollectiveCall other = peer(p);
      std::vector<int64_t> sent = transfers.read(other.sent, size);
      other.sent = sent.data();
      int64_t rows = rowsFrom(own, other, p);
      for (size_t i = 0; i < call.parts.size(); ++i) {
        const Part &part = call.parts[i];
        int64_t bytes = rows * part.inner * elementSize;
        book(p, bytes);
        transfers.copy(part.dst + p * part.count * elementSize,
                       partOf(p, i).src + call.self * part.count * elementSize,
                       bytes);
      }
    }
  }

  void receiveWhole(size_t index) {
    const Part &part = call.parts[index];
    int from = call.kind == CollectiveKind::Permute ? call.sources[call.self]
                                                    : call.root;
    int64_t bytes = part.count * elementSize;
    if (from < 0) {
      transfers.zero(part.dst, bytes);
      return;
    }
    book(from, bytes);
    transfers.copy(part.dst, partOf(from, index).src, bytes);
  }

  void exchange() {
    int rounds = 1;
    for (size_t index = 0; index < call.parts.size(); ++index) {
      rounds = std::max(rounds, call.parts[index].rounds);
      exchange(index, 0);
    }
    if (rounds == 1)
      return;
    halfway();
    for (size_t index = 0; index < call.parts.size(); ++index)
      exchange(index, 1);
  }

  // Assembles our tile from boxes. In the second round the boxes come from
  // tiles that other members assembled.
  void exchange(size_t index, int round) {
    const Part &part = call.parts[index];
    for (const program::ExchangePiece &piece : part.pieces) {
      if (piece.receiver != call.self || piece.round != round)
        continue;
      std::vector<const char *> from;
      for (int32_t sender : piece.senders) {
        const Part &theirs = partOf(sender, index);
        from.push_back(round ? theirs.dst : theirs.src);
        book(sender, piece.count() * elementSize);
      }
      transfers.box(piece, part.dst, part.dstStrides, from,
                    round ? part.dstStrides : part.srcStrides, call);
    }
  }

  const std::shared_ptr<const DeviceCall> shared;
  const DeviceCall &call;
  Group &group;
  Counters &counters;
  Transfers &transfers;
  const int64_t elementSize;
  const int size;
};

class DeviceTransport : public Transport {
public:
  DeviceTransport(const TransportOptions &options, Counters &counters,
                  int first, std::vector<RankStream> ranks)
      : options(options), counters(counters), first(first) {
    for (const RankStream &rank : ranks) {
      for (const RankStream &other : ranks)
        rank.device->reach(*other.device);
      rank.device->use();
      transfers.push_back(std::make_unique<Transfers>(rank));
    }
  }

  std::unique_ptr<Endpoint> connect(int rank) override;

  void abort() override {
    std::lock_guard lock(mutex);
    aborted = true;
    for (auto &[members, group] : groups)
      group->abort();
    for (auto &[ranks, channel] : channels)
      channel->abort();
  }

  DeviceChannel &channel(int from, int to) {
    std::lock_guard lock(mutex);
    std::unique_ptr<DeviceChannel> &channel = channels[{from, to}];
    if (!channel) {
      channel = std::make_unique<DeviceChannel>(options);
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

  Transfers &of(int rank) { return *transfers[rank - first]; }

  const TransportOptions options;
  Counters &counters;

private:
  const int first;
  std::vector<std::unique_ptr<Transfers>> transfers; // by rank less first
  std::mutex mutex;
  std::map<std::vector<int>, std::unique_ptr<Group>> groups;
  std::map<std::pair<int, int>, std::unique_ptr<DeviceChannel>> channels;
  bool aborted = false;
};

class DeviceEndpoint : public Endpoint {
public:
  DeviceEndpoint(DeviceTransport &transport, int rank)
      : transport(transport), rank(rank) {}

  std::unique_ptr<Operation> prepare(CollectiveCall call) override {
    Transfers &transfers = transport.of(rank);
    if (call.kind == CollectiveKind::SendRecv)
      return transport.channel(call.members[0], call.members[1])
          .prepare(std::move(call), transport.counters, transfers);
    Group &group = transport.groupOf(call.members);
    return std::make_unique<DeviceOperation>(std::move(call), group,
                                             transport.counters, transfers);
  }

private:
  DeviceTransport &transport;
  const int rank;
};

std::unique_ptr<Endpoint> DeviceTransport::connect(int rank) {
  return std::make_unique<DeviceEndpoint>(*this, rank);
}
} // namespace

std::unique_ptr<Transport>
cuda::makeLocalTransport(const TransportOptions &options, Counters &counters,
                         int first, std::vector<RankStream> ranks) {
  return std::make_unique<DeviceTransport>(options, counters, first,
                                           std::move(ranks));
}
