// The `local` transport between ranks on CUDA devices. Ranks are threads of one
// process, and each reads the memory of its peers.
//
// The threads of a collective's members meet at barriers only to exchange the
// events of their streams. Each rank moves data on a separate stream. A member
// reads the source buffer of another member after this member's event `ready`.
// A source buffer may be overwritten after the events `read` of all members.

#include "cuda/backend.h"

#include "device_channel.h"
#include "device_moves.h"
#include "group_operation.h"

using namespace cleave;
using namespace cleave::cuda;
using program::CollectiveKind;

namespace {
// A member's call of a collective, with the events that the other members wait
// for.
struct DeviceCall : CollectiveCall {
  DeviceCall(CollectiveCall call)
      : CollectiveCall(std::move(call)), ready(makeEvent()),
        halfway(makeEvent()), read(makeEvent()), done(makeEvent()) {}
  const Event ready;   // src is complete, dst may be written
  const Event halfway; // between two rounds
  const Event read;    // this member has read the other members' data
  const Event done;
};

class DeviceOperation : public GroupOperation {
public:
  DeviceOperation(CollectiveCall given, Group &group, Counters &counters,
                  Transfers &transfers)
      : DeviceOperation(std::make_shared<DeviceCall>(std::move(given)), group,
                        counters, transfers) {}

  void start() override {
    check(driver().cuEventRecord(shared->ready.get(), transfers.rank.compute),
          "starting " + describe(call));
  }

  void finish() override {
    mine().calls.fetch_add(1, std::memory_order_relaxed);
    group.calls[call.self] = shared;
    group.barrier(call);
    group.checkCalls(call);
    waitForAll(&DeviceCall::ready);
    transfers.begin(call);
    // AllToAllV: the numbers of rows to receive are in device memory, so they
    // are copied to the host.
    if (call.kind == CollectiveKind::AllToAllV)
      ownRows = transfers.read(call.received, size);
    move();
    record(shared->read);
    group.barrier(call);
    waitForAll(&DeviceCall::read);
    after(transfers.stream.get(), shared->done.get(), transfers.rank.compute);
    group.barrier(call); // only now may events be recorded again
  }

private:
  DeviceOperation(std::shared_ptr<const DeviceCall> given, Group &group,
                  Counters &counters, Transfers &transfers)
      : GroupOperation(*given, group, counters), shared(std::move(given)),
        transfers(transfers) {}

  const DeviceCall &peer(int member) const {
    return static_cast<const DeviceCall &>(*group.calls[member]);
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

  // Between the two rounds of an exchange each member's stream waits for the
  // first round of all members.
  void betweenRounds() override {
    record(shared->halfway);
    group.barrier(call);
    waitForAll(&DeviceCall::halfway);
  }

  void copyRows(char *dst, int64_t dstStride, const char *src,
                int64_t srcStride, int64_t rows, int64_t bytes) override {
    transfers.copy2d(dst, dstStride, src, srcStride, rows, bytes);
  }

  void zero(char *dst, int64_t bytes) override { transfers.zero(dst, bytes); }

  void reduce(const RowReduction &all) override {
    Reduction reduction;
    reduction.dst = all.dst;
    reduction.srcs = all.srcs;
    reduction.rows = all.rows;
    reduction.count = all.count;
    reduction.dstStride = all.dstStride;
    reduction.srcStride = all.srcStride;
    transfers.reduce(reduction, call);
  }

  void retile(const Runs &dst, const ConstRuns &src, int64_t count) override {
    transfers.retile(dst, src, count, elementSize);
  }

  void box(const program::ExchangePiece &piece, const Part &part,
           const std::vector<const char *> &from,
           const std::vector<int64_t> &srcStrides) override {
    transfers.box(piece, part.dst, part.dstStrides, from, srcStrides, call);
  }

  int64_t rowsOfMember(int member) override {
    CollectiveCall own = call, other = peer(member);
    std::vector<int64_t> sent = transfers.read(other.sent, size);
    own.received = ownRows.data();
    other.sent = sent.data();
    return rowsFrom(own, other, member);
  }

  const std::shared_ptr<const DeviceCall> shared;
  Transfers &transfers;
  std::vector<int64_t> ownRows; // AllToAllV: rows to receive from each member
};

class DeviceTransport : public GroupTransport<DeviceChannel> {
public:
  DeviceTransport(const TransportOptions &options, Counters &counters,
                  int first, std::vector<RankStream> ranks)
      : GroupTransport(options, counters), first(first) {
    for (const RankStream &rank : ranks) {
      for (const RankStream &other : ranks)
        rank.device->reach(*other.device);
      rank.device->use();
      transfers.push_back(std::make_unique<Transfers>(rank));
    }
  }

  std::unique_ptr<Endpoint> connect(int rank) override;

  Transfers &of(int rank) { return *transfers[rank - first]; }

private:
  const int first;
  std::vector<std::unique_ptr<Transfers>> transfers; // by rank - first
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
