// The `nccl` transport. There is a communicator for each group of ranks, and
// one for each ordered pair of ranks that exchanges messages. Each communicator
// has its own stream. Creating a communicator does not block, because ranks
// with different command lists need communicators in different orders.
// Collectives that start before their communicator is ready are queued.

#include "nccl_transport.h"

#include "error.h"
#include "nccl_call.h"
#include "nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

using namespace cleave;
using namespace cleave::cuda;
using program::CollectiveKind;

namespace {
using Clock = std::chrono::steady_clock;
using Key = std::vector<int>; // members; for a pair: -1, sender, receiver

Key keyOf(const CollectiveCall &call) {
  if (call.kind != CollectiveKind::SendRecv)
    return call.members;
  return {-1, call.members[0], call.members[1]};
}

class NcclTransport : public Transport {
public:
  NcclTransport(const TransportOptions &options, Counters &counters, int first,
                std::vector<RankStream> ranks, std::unique_ptr<Store> store)
      : options(options), counters(counters), store(std::move(store)),
        first(first), ranks(std::move(ranks)) {}

  std::unique_ptr<Endpoint> connect(int rank) override;

  void abort() override {
    std::lock_guard lock(mutex);
    isAborted = true;
    for (auto &[key, group] : groups)
      group->abort();
    for (auto &communicator : communicators)
      if (std::shared_ptr<NcclCommunicator> one = communicator.lock())
        one->abort();
  }

  // Returns NULL if a member is in another process.
  NcclGroup *groupOf(const Key &key, const std::vector<int> &members) {
    for (int rank : members)
      if (rank < first || rank >= first + int(ranks.size()))
        return nullptr;
    std::lock_guard lock(mutex);
    std::unique_ptr<NcclGroup> &group = groups[key];
    if (!group) {
      group = std::make_unique<NcclGroup>(members, options);
      if (isAborted)
        group->abort();
    }
    return group.get();
  }

  std::shared_ptr<NcclCommunicator>
  connect(const Key &key, const std::vector<int> &members, int rank) {
    std::string name = key[0] < 0 ? "send" : "group";
    for (int member : members)
      name += "." + std::to_string(member);
    auto self = std::find(members.begin(), members.end(), rank);
    const RankStream &stream = ranks[rank - first];
    stream.device->use();
    auto made = std::make_shared<NcclCommunicator>(
        name, members, int(self - members.begin()), stream, *store,
        groupOf(key, members));
    std::lock_guard lock(mutex);
    communicators.push_back(made);
    if (isAborted)
      made->abort();
    return made;
  }

  const RankStream &streamOf(int rank) const { return ranks[rank - first]; }

  const TransportOptions options;
  Counters &counters;
  const std::unique_ptr<Store> store;

private:
  const int first;
  const std::vector<RankStream> ranks;
  std::mutex mutex;
  std::map<Key, std::unique_ptr<NcclGroup>> groups;
  std::vector<std::weak_ptr<NcclCommunicator>> communicators;
  bool isAborted = false;
};

class NcclEndpoint : public Endpoint {
public:
  NcclEndpoint(NcclTransport &transport, int rank)
      : transport(transport), rank(rank) {}

  // Communicators are created in the same order on all ranks.
  void announce(std::vector<std::vector<int>> groups) override {
    std::sort(groups.begin(), groups.end());
    for (const std::vector<int> &members : groups)
      communicatorOf(members, members);
  }
  std::unique_ptr<Operation> prepare(CollectiveCall call) override;
  void connect() override;
  void progress() override {
    drive();
    watch();
  }
  int64_t bufferBytes() const override {
    int64_t bytes = 0;
    for (const auto &[key, communicator] : communicators)
      bytes += communicator->stagingBytes();
    return bytes;
  }

  std::shared_ptr<NcclCommunicator>
  communicatorOf(const Key &key, const std::vector<int> &members) {
    std::shared_ptr<NcclCommunicator> &found = communicators[key];
    if (!found)
      found = transport.connect(key, members, rank);
    return found;
  }

  // Enqueues queued collectives whose communicators are ready now.
  void drive() {
    for (auto &[key, communicator] : communicators)
      if (!communicator->waiting.empty() && communicator->advance())
        while (!communicator->waiting.empty()) {
          auto enqueue = std::move(communicator->waiting.front());
          communicator->waiting.pop_front();
          enqueue();
        }
  }

  // Records that the rank has just started or ended a transfer.
  void act() { acted = Clock::now(); }

  NcclTransport &transport;

private:
  void watch();
  std::vector<int> late(const NcclCommunicator &communicator);

  const int rank;
  std::map<Key, std::shared_ptr<NcclCommunicator>> communicators;
  Clock::time_point acted = Clock::now(), watched = acted;
};

class NcclOperation : public Operation {
public:
  NcclOperation(CollectiveCall given, NcclEndpoint &endpoint,
                std::shared_ptr<NcclCommunicator> made)
      : work(std::move(given)), call(work.call), endpoint(endpoint),
        communicator(std::move(made)), ready(makeEvent()), done(makeEvent()) {
    communicator->reserve(work.stagingBytes());
  }

  ~NcclOperation() override {
    if (communicator->last == &call)
      communicator->last = nullptr;
    if (!isStarted)
      return;
    // The memory of the started collective will be freed, so it must not run.
    communicator->waiting.clear();
    communicator->abort();
    (void)driver().cuStreamSynchronize(communicator->transfers.stream.get());
  }

  void start() override {
    if (isStarted)
      fail(CLEAVE_BAD_PROGRAM, describe(call) + " is started twice");
    isStarted = true;
    isEnqueued = false;
    communicator->last = &call;
    ++communicator->starts;
    endpoint.act();
    if (communicator->group)
      turn = communicator->group->start(call);
    check(driver().cuEventRecord(ready.get(), compute()),
          "starting " + describe(call));
    communicator->waiting.push_back([this] { enqueue(); });
    endpoint.drive();
  }

  void finish() override {
    if (!isStarted)
      fail(CLEAVE_BAD_PROGRAM, describe(call) + " has not been started");
    if (communicator->group)
      communicator->group->await(call, turn, [&] { endpoint.drive(); });
    auto deadline =
        Clock::now() + std::chrono::duration<double>(
                           endpoint.transport.options.timeoutSeconds);
    for (int round = 0; !isEnqueued; ++round) {
      endpoint.drive();
      if (isEnqueued)
        break;
      if (Clock::now() > deadline)
        throw lateness(call, endpoint.transport.options.timeoutSeconds,
                       communicator->missing());
      std::this_thread::sleep_for(
          std::chrono::microseconds(std::min(10 * (round + 1), 1000)));
    }
    check(driver().cuStreamWaitEvent(compute(), done.get(), 0), describe(call));
    isStarted = false;
    endpoint.act();
    book();
  }

  bool mayReplay() const override {
    return call.kind != CollectiveKind::AllToAllV;
  }
  void replayed() override {
    communicator->last = &call;
    ++communicator->starts;
    endpoint.act();
    // The group must know of the replay: other members may not replay this
    // collective from a graph.
    if (communicator->group) {
      turn = communicator->group->start(call);
      communicator->group->enqueued(call.self);
    }
    book();
  }

private:
  void book() {
    Counters::Entry &mine =
        endpoint.transport.counters.at(call.members[call.self], call.purpose);
    mine.calls.fetch_add(1, std::memory_order_relaxed);
    mine.sent.fetch_add(work.sent(), std::memory_order_relaxed);
    mine.received.fetch_add(work.received(), std::memory_order_relaxed);
  }
  CUstream compute() const { return communicator->transfers.rank.compute; }

  void enqueue() {
    Transfers &transfers = communicator->transfers;
    CUstream stream = transfers.stream.get();
    check(driver().cuStreamWaitEvent(stream, ready.get(), 0), describe(call));
    work.begin(transfers);
    communicator->use([&](ncclComm_t comm) {
      work.enqueue(comm, transfers, communicator->staging());
    });
    check(driver().cuEventRecord(done.get(), stream), describe(call));
    isEnqueued = true;
    if (communicator->group)
      communicator->group->enqueued(call.self);
  }

  NcclCall work;
  const CollectiveCall &call;
  NcclEndpoint &endpoint;
  const std::shared_ptr<NcclCommunicator> communicator;
  const Event ready, done;
  int64_t turn = 0;
  bool isStarted = false, isEnqueued = false;
};

std::unique_ptr<Operation> NcclEndpoint::prepare(CollectiveCall call) {
  transport.streamOf(rank).device->use();
  auto communicator = communicatorOf(keyOf(call), call.members);
  communicator->sends |= call.kind != CollectiveKind::AllReduce &&
                         call.kind != CollectiveKind::AllGather &&
                         call.kind != CollectiveKind::ReduceScatter &&
                         call.kind != CollectiveKind::Broadcast;
  return std::make_unique<NcclOperation>(std::move(call), *this,
                                         std::move(communicator));
}

// All ranks connect their communicators in the same order, by key. At any time
// the members of the first communicator that is not connected wait only for
// each other, so there is no deadlock.
void NcclEndpoint::connect() {
  transport.streamOf(rank).device->use();
  Clock::time_point begin = Clock::now();
  std::chrono::duration<double> patience(transport.options.timeoutSeconds);
  for (auto &[key, communicator] : communicators) {
    if (communicator->members.size() < 2)
      continue;
    NcclCommunicator &own = *communicator;
    std::string who = "ranks " + print(own.members);
    auto pauseOr = [&](auto why) {
      if (Clock::now() - begin > patience)
        throw RuntimeError(CLEAVE_TIMEOUT, why());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    while (!own.advance())
      pauseOr([&] {
        return "making a communicator of " + who +
               ": missing ranks: " + print(own.missing());
      });
    while (own.sends && !own.connect())
      pauseOr([&] {
        return "connecting " + who +
               ": NCCL did not bring their first "
               "messages; NCCL_DEBUG=INFO tells what it waits for";
      });
  }
}

// Returns the members that have started fewer collectives of the communicator
// than this rank. Each rank publishes the number that it has started in the
// store.
std::vector<int> NcclEndpoint::late(const NcclCommunicator &communicator) {
  std::string what = communicator.key + "/late/";
  transport.store->set(what + std::to_string(rank),
                       std::to_string(communicator.starts));
  std::this_thread::sleep_for(std::chrono::seconds(1));
  std::vector<int> ranks;
  for (int member : communicator.members) {
    auto reached = transport.store->get(what + std::to_string(member));
    if (!reached || std::stoll(*reached) < communicator.starts)
      ranks.push_back(member);
  }
  return ranks;
}

// Detects transfers that take longer than the timeout. A stream is queried only
// if no transfer has started or finished during the timeout. Then the host is
// waiting and captures no graph, which a query would disturb.
void NcclEndpoint::watch() {
  Clock::time_point now = Clock::now();
  if (now - watched < std::chrono::milliseconds(20))
    return;
  watched = now;
  bool isLate = now - acted >
                std::chrono::duration<double>(transport.options.timeoutSeconds);
  for (auto &[key, communicator] : communicators) {
    if (!communicator->last)
      continue;
    communicator->check(*communicator->last);
    // Transfers in a replayed graph run on the stream of commands and not on
    // that of transfers, so both are queried.
    auto isBusy = [](CUstream stream) {
      return driver().cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
    };
    if (!isLate || !(isBusy(communicator->transfers.stream.get()) ||
                     isBusy(transport.streamOf(rank).compute)))
      continue;
    // If no member is late, the stream is busy with a long computation.
    if (std::vector<int> ranks = late(*communicator); !ranks.empty())
      throw lateness(*communicator->last, transport.options.timeoutSeconds,
                     ranks);
  }
}

std::unique_ptr<Endpoint> NcclTransport::connect(int rank) {
  return std::make_unique<NcclEndpoint>(*this, rank);
}
} // namespace

std::unique_ptr<Transport>
cuda::makeNcclTransport(const TransportOptions &options, Counters &counters,
                        int first, std::vector<RankStream> ranks,
                        std::unique_ptr<Store> store) {
  return std::make_unique<NcclTransport>(options, counters, first,
                                         std::move(ranks), std::move(store));
}
