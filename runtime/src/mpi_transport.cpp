// The `mpi` transport: every rank is a process, and a collective consists of
// direct messages between its members. Each member receives and reduces the
// same data in the same order as in the `local` transport, so both move the
// same bytes and give bit-identical results. Before its first data a member
// sends each peer a header that identifies the collective. The header detects
// members that call different collectives, and tells the watchdog which ranks
// are missing.

#include "error.h"
#include "routes.h"
#include "transport.h"
#include "world.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

using namespace cleave;

namespace {
using Clock = World::Clock;

constexpr int abortTag = Wire::lastTag;
// The tags that a group uses: one for headers, then one for each phase.
constexpr int tagsOfGroup = 1 + Routes::phases;

// Buffers for messages, which are reused in every step.
class Scratch {
public:
  ~Scratch() {
    // MPI may still access the buffers of messages that were given up.
    for (Block &block : blocks)
      if (!isLost)
        free(block.at);
  }

  char *take(int64_t bytes) {
    int64_t size = 4096;
    while (size < bytes)
      size *= 2;
    for (Block &block : blocks)
      if (block.size == size && !block.isTaken) {
        block.isTaken = true;
        return block.at;
      }
    auto *at = static_cast<char *>(aligned_alloc(4096, size));
    if (!at)
      fail(CLEAVE_OUT_OF_MEMORY,
           std::to_string(size) + " bytes for messages cannot be allocated");
    total += size;
    blocks.push_back({at, size, true});
    return at;
  }
  void give(char *at) {
    for (Block &block : blocks)
      if (block.at == at)
        block.isTaken = false;
  }

  int64_t total = 0;
  bool isLost = false;

private:
  struct Block {
    char *at;
    int64_t size;
    bool isTaken;
  };
  std::vector<Block> blocks;
};

struct Header {
  uint64_t signature = 0; // of everything that members must agree on
  int64_t turn = 0;       // how many collectives the group has started
  char what[112] = {};    // describes the collective, for error messages
};

uint64_t signatureOf(const CollectiveCall &call) {
  uint64_t hash = 0xcbf29ce484222325;
  auto mix = [&](int64_t value) {
    hash = (hash ^ static_cast<uint64_t>(value)) * 0x100000001b3;
    hash ^= hash >> 29;
  };
  mix(static_cast<int64_t>(call.kind));
  mix(static_cast<int64_t>(call.dtype));
  mix(static_cast<int64_t>(call.reduce));
  for (int rank : call.members)
    mix(rank);
  for (const Part &part : call.parts) {
    mix(part.count);
    mix(part.outer);
  }
  return hash;
}

class MpiTransport : public Transport {
public:
  MpiTransport(const TransportOptions &options, Counters &counters,
               World &world)
      : options(options), counters(counters), world(world), wire(world.wire()),
        channel(wire.openChannel()) {
    Patience patience(options.spin);
    while (!wire.channelReady(channel)) {
      world.checkAlive();
      patience.wait();
    }
    if (world.rank() < options.ranks)
      wire.receive(abortNotice, channel, Wire::anyone, abortTag, nullptr, 0);
  }

  ~MpiTransport() override {
    wire.drop(abortNotice, true);
    if (!isAborted)
      wire.closeChannel(channel);
  }

  std::unique_ptr<Endpoint> connect(int rank) override;

  void abort() override {
    if (isAborted.exchange(true))
      return;
    for (int rank = 0; rank < options.ranks; ++rank) {
      if (rank == world.rank() || world.hasEnded(rank))
        continue;
      Wire::Request request;
      try {
        wire.send(request, channel, rank, abortTag, nullptr, 0);
        wire.drop(request, false);
      } catch (const RuntimeError &) {
        // The peer does not learn of it; its own watchdog will report it.
      }
    }
  }

  // Lets MPI move messages, which it does only during calls.
  void progress() {
    if (!isAborted && abortNotice.active && wire.test(abortNotice, nullptr))
      isAborted = true;
  }

  // Throws if the run cannot continue.
  void check(const CollectiveCall &call) {
    if (isAborted || (abortNotice.active && wire.test(abortNotice, nullptr))) {
      isAborted = true;
      throw Aborted();
    }
    try {
      world.checkAlive();
    } catch (const RuntimeError &error) {
      throw RuntimeError(error.status,
                         std::string(error.what()) + "; " + describe(call) +
                             " over ranks " + print(call.members) +
                             " waits for it",
                         error.rank);
    }
  }

  const TransportOptions options;
  Counters &counters;
  World &world;
  Wire &wire;
  const int channel;
  std::atomic<bool> isAborted{false};

private:
  Wire::Request abortNotice;
};

class MpiEndpoint : public Endpoint {
public:
  explicit MpiEndpoint(MpiTransport &transport) : transport(transport) {}
  ~MpiEndpoint() override { scratch.isLost = transport.isAborted; }

  std::unique_ptr<Operation> prepare(CollectiveCall call) override;
  int64_t bufferBytes() const override { return scratch.total; }

  // Two groups may share two members, and their collectives may be in flight
  // between these members at the same time. So each pair of ranks uses a
  // different tag for each group. All groups are numbered here in sorted order,
  // so that both ranks get the same tags, in whatever order they run
  // collectives.
  void announce(std::vector<std::vector<int>> all) override {
    std::sort(all.begin(), all.end());
    for (const std::vector<int> &members : all)
      for (int peer : members)
        if (peer != transport.world.rank())
          tagOf(members, peer);
  }

  // Tags are assigned to keys. The key of a group is its list of members. The
  // key of a SendRecv is a list that is different from that of every group.
  static std::vector<int> keyOf(const CollectiveCall &call) {
    if (call.kind != program::CollectiveKind::SendRecv)
      return call.members;
    return {-1, call.members[0], call.members[1]};
  }

  int tagOf(const std::vector<int> &key, int peer) {
    if (key[0] < 0)
      return key[1] < key[2] ? 0 : tagsOfGroup;
    std::map<std::vector<int>, int> &known = groups[peer];
    int index = 2 + known.emplace(key, known.size()).first->second;
    if ((index + 1) * tagsOfGroup > abortTag)
      fail(CLEAVE_UNSUPPORTED,
           "ranks " + print(key) + " are in too many different groups");
    return index * tagsOfGroup;
  }

  int64_t &turnOf(const std::vector<int> &key) { return turns[key]; }

  void progress() override {
    if (started > 0)
      transport.progress();
  }

  int started = 0; // operations started but not finished

  MpiTransport &transport;
  Scratch scratch;

private:
  std::map<int, std::map<std::vector<int>, int>> groups;
  std::map<std::vector<int>, int64_t> turns;
};

class MpiOperation : public Operation {
public:
  MpiOperation(CollectiveCall given, MpiEndpoint &endpoint)
      : call(std::move(given)), endpoint(endpoint),
        transport(endpoint.transport), wire(transport.wire),
        size(static_cast<int>(call.members.size())), peers(size), routes(call),
        turn(endpoint.turnOf(MpiEndpoint::keyOf(call))) {
    std::vector<int> key = MpiEndpoint::keyOf(call);
    for (int member = 0; member < size; ++member)
      peers[member].tag =
          member == call.self ? 0 : endpoint.tagOf(key, call.members[member]);
    header.signature = signatureOf(call);
    std::string what = describe(call);
    std::memcpy(header.what, what.data(),
                std::min(what.size(), sizeof(header.what) - 1));
    for (int member = 0; member < size; ++member)
      peers[member].isTold = peers[member].isHeard =
          routes.isMutual() && member != call.self;
    cutParcels();
    for (std::vector<Parcel> &phase : routes.parcels)
      for (Parcel &parcel : phase) {
        Peer &peer = peers[parcel.member];
        (parcel.isIncoming ? peer.isHeard : peer.isTold) = true;
      }
  }

  ~MpiOperation() override {
    for (Peer &peer : peers) {
      wire.drop(peer.arrival, true);
      wire.drop(peer.notice, false);
    }
    for (std::vector<Parcel> &phase : routes.parcels)
      for (Parcel &parcel : phase)
        for (Wire::Request &piece : parcel.pieces)
          wire.drop(piece, parcel.isIncoming);
  }

  void start() override {
    transport.check(call);
    if (call.kind == program::CollectiveKind::AllToAllV) {
      routes.replan();
      cutParcels();
    }
    ++endpoint.started;
    header.turn = ++turn;
    for (int member = 0; member < size; ++member) {
      Peer &peer = peers[member];
      if (peer.isHeard)
        wire.receive(peer.arrival, transport.channel, call.members[member],
                     peer.tag, &peer.header, sizeof(Header));
    }
    postParcels(Routes::First, /*incoming=*/true);
    for (int member = 0; member < size; ++member) {
      Peer &peer = peers[member];
      if (peer.isTold)
        wire.send(peer.notice, transport.channel, call.members[member],
                  peer.tag, &header, sizeof(Header));
    }
    postParcels(Routes::First, /*incoming=*/false);
  }

  void finish() override {
    mine().calls.fetch_add(1, std::memory_order_relaxed);
    transport.check(call);
    wait(Routes::First);
    routes.combine();
    if (!routes.parcels[Routes::Second].empty()) {
      postParcels(Routes::Second, /*incoming=*/true);
      postParcels(Routes::Second, /*incoming=*/false);
      wait(Routes::Second);
      release(Routes::Second);
    }
    release(Routes::First);
    --endpoint.started;
  }

private:
  struct Peer {
    int tag = 0;
    bool isHeard = false, isTold = false; // it sends to us; we send to it
    Header header;
    Wire::Request arrival, notice;
  };

  Counters::Entry &mine() {
    return transport.counters.at(call.members[call.self], call.purpose);
  }

  //--- Messages ------------------------------------------------------------

  void cutParcels() {
    int64_t longest = transport.options.longestMessage;
    for (std::vector<Parcel> &phase : routes.parcels)
      for (Parcel &parcel : phase)
        parcel.pieces.resize((parcel.bytes + longest - 1) / longest);
  }

  void postParcels(Routes::Phase phase, bool incoming) {
    for (Parcel &parcel : routes.parcels[phase]) {
      if (parcel.isIncoming != incoming)
        continue;
      if (parcel.places.size() == 1 && parcel.places[0].dense()) {
        parcel.memory = parcel.places[0].at;
      } else {
        parcel.memory = parcel.scratch = endpoint.scratch.take(parcel.bytes);
        if (!incoming)
          moveRows(parcel, /*toPlaces=*/false);
      }
      int rank = call.members[parcel.member];
      int tag = peers[parcel.member].tag + 1 + phase;
      for (size_t i = 0; i < parcel.pieces.size(); ++i) {
        auto [begin, bytes] = piece(parcel, i);
        if (incoming)
          wire.receive(parcel.pieces[i], transport.channel, rank, tag,
                       parcel.memory + begin, bytes);
        else
          wire.send(parcel.pieces[i], transport.channel, rank, tag,
                    parcel.memory + begin, bytes);
      }
      if (!incoming)
        mine().sent.fetch_add(parcel.bytes, std::memory_order_relaxed);
    }
  }

  // Returns the offset at which piece `i` of a message begins, and its length.
  std::pair<int64_t, int64_t> piece(const Parcel &parcel, size_t i) const {
    int64_t longest = transport.options.longestMessage;
    int64_t begin = static_cast<int64_t>(i) * longest;
    return {begin, std::min(longest, parcel.bytes - begin)};
  }

  static void moveRows(const Parcel &parcel, bool toPlaces) {
    char *at = parcel.scratch;
    for (const Rows &rows : parcel.places)
      for (int64_t row = 0; row < rows.rows; ++row, at += rows.bytes) {
        char *place = rows.at + row * rows.stride;
        std::memcpy(toPlaces ? place : at, toPlaces ? at : place, rows.bytes);
      }
  }

  // Waits until all incoming messages of the phase have arrived and all
  // outgoing ones have been sent.
  void wait(Routes::Phase phase) {
    Patience patience(transport.options.spin);
    Clock::time_point deadline =
        Clock::now() +
        std::chrono::duration_cast<Clock::duration>(
            std::chrono::duration<double>(transport.options.timeoutSeconds));
    while (!advance(phase)) {
      try {
        transport.check(call);
      } catch (const Aborted &) {
        std::vector<int> ranks = missing(phase);
        throw Aborted(ranks.empty() ? -1 : ranks.front());
      }
      if (Clock::now() > deadline)
        giveUp(phase);
      patience.wait();
    }
  }

  bool advance(Routes::Phase phase) {
    bool done = true;
    for (int member = 0; member < size; ++member) {
      Peer &peer = peers[member];
      if (peer.arrival.active) {
        if (wire.test(peer.arrival, nullptr))
          meet(member);
        else
          done = false;
      }
      if (peer.notice.active && !wire.test(peer.notice, nullptr))
        done = false;
    }
    for (Parcel &parcel : routes.parcels[phase])
      // A peer's header identifies its data, so it is received first.
      if (!parcel.isIncoming || !peers[parcel.member].arrival.active)
        done = advance(parcel) && done;
    return done;
  }

  bool advance(Parcel &parcel) {
    bool done = true, moved = false;
    for (size_t i = 0; i < parcel.pieces.size(); ++i) {
      Wire::Request &request = parcel.pieces[i];
      if (!request.active)
        continue;
      int64_t bytes = 0;
      if (!wire.test(request, parcel.isIncoming ? &bytes : nullptr)) {
        done = false;
        continue;
      }
      moved = true;
      if (!parcel.isIncoming)
        continue;
      mine().received.fetch_add(bytes, std::memory_order_relaxed);
      if (bytes != piece(parcel, i).second)
        fail(CLEAVE_BAD_PROGRAM,
             "rank " + std::to_string(call.members[parcel.member]) + " sent " +
                 std::to_string(bytes) + " bytes in " + describe(call) +
                 ", expected " + std::to_string(piece(parcel, i).second));
    }
    if (done && moved && parcel.isIncoming && parcel.scratch &&
        !parcel.places.empty())
      moveRows(parcel, /*toPlaces=*/true);
    return done;
  }

  void meet(int member) const {
    const Header &theirs = peers[member].header;
    if (theirs.signature == header.signature && theirs.turn == header.turn)
      return;
    fail(CLEAVE_BAD_PROGRAM,
         "ranks " + std::to_string(call.members[call.self]) + " and " +
             std::to_string(call.members[member]) +
             " meet in different collectives: " + describe(call) + " and " +
             theirs.what);
  }

  [[noreturn]] void giveUp(Routes::Phase phase) const {
    transport.world.lose();
    throw lateness(call, transport.options.timeoutSeconds, missing(phase));
  }

  // Returns the ranks from which a header or data has not arrived.
  std::vector<int> missing(Routes::Phase phase) const {
    std::vector<int> ranks;
    for (int member = 0; member < size; ++member)
      if (peers[member].arrival.active)
        ranks.push_back(call.members[member]);
    // If the headers of all members have arrived, the missing ranks are those
    // that have not sent all of their data.
    if (ranks.empty())
      for (const Parcel &parcel : routes.parcels[phase])
        for (const Wire::Request &request : parcel.pieces)
          if (request.active &&
              (ranks.empty() || ranks.back() != call.members[parcel.member]))
            ranks.push_back(call.members[parcel.member]);
    return ranks;
  }

  void release(Routes::Phase phase) {
    for (Parcel &parcel : routes.parcels[phase])
      if (parcel.scratch) {
        endpoint.scratch.give(parcel.scratch);
        parcel.scratch = nullptr;
      }
  }

  const CollectiveCall call;
  MpiEndpoint &endpoint;
  MpiTransport &transport;
  Wire &wire;
  const int size;
  std::vector<Peer> peers;
  Routes routes;
  Header header;
  int64_t &turn; // shared by the operations of the group
};

std::unique_ptr<Operation> MpiEndpoint::prepare(CollectiveCall call) {
  return std::make_unique<MpiOperation>(std::move(call), *this);
}

std::unique_ptr<Endpoint> MpiTransport::connect(int) {
  return std::make_unique<MpiEndpoint>(*this);
}
} // namespace

std::unique_ptr<Transport>
cleave::makeMpiTransport(const TransportOptions &options, Counters &counters,
                         World &world) {
  return std::make_unique<MpiTransport>(options, counters, world);
}
