// The `mpi` transport: every rank is a process, and a collective is messages
// between its members, straight to each other. Who receives what, and the order
// in which a member adds up what it received, are those of the `local`
// transport, so that both move the same bytes and give the same bits.
//
// Before its first data a member sends each peer a header that says which
// collective it is in: that finds programs that disagree, and tells the
// watchdog who is missing.

#include "error.h"
#include "transport.h"
#include "world.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

using namespace cleave;
using program::CollectiveKind;

namespace {
using Clock = World::Clock;

constexpr int abortTag = Wire::lastTag;
enum Phase { Meeting, First, Second, phases };

// Rows of equal length at equal distances.
struct Rows {
  char *at = nullptr;
  int64_t rows = 1, bytes = 0, stride = 0;

  int64_t total() const { return rows * bytes; }
  bool dense() const { return rows == 1 || stride == bytes; }

  // Takes on one more row if it lies where the next one would.
  bool append(const Rows &next) {
    int64_t step = rows == 1 ? next.at - at : stride;
    if (next.rows != 1 || next.bytes != bytes || step < bytes ||
        next.at != at + rows * step)
      return false;
    ++rows;
    stride = step;
    return true;
  }
};

// What goes to or comes from one member in one phase: where it lies here, or
// nowhere for what is to be added up, which stays in scratch memory.
struct Parcel {
  Parcel(int member, bool isIncoming)
      : member(member), isIncoming(isIncoming) {}

  void add(Rows rows) {
    if (rows.total() == 0)
      return;
    bytes += rows.total();
    if (!places.empty() && places.back().append(rows))
      return;
    places.push_back(rows);
  }

  int member;
  bool isIncoming;
  int64_t bytes = 0;
  std::vector<Rows> places;
  char *memory = nullptr, *scratch = nullptr; // while it is under way
  std::vector<Wire::Request> pieces;
};

// Memory for messages, kept from step to step.
class Scratch {
public:
  ~Scratch() {
    // Messages that were given up may still be read by MPI.
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
  char what[112] = {};    // for messages
};

std::string describe(const CollectiveCall &call) {
  return std::string(nameOf(call.kind)) + " " + call.name;
}

std::string print(const std::vector<int> &ranks) {
  std::string text;
  for (int rank : ranks)
    text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text.empty() ? "none" : text;
}

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
      } catch (const Error &) {
        // It cannot be told; its own watchdog will.
      }
    }
  }

  // Throws where the run cannot go on.
  void check(const CollectiveCall &call) {
    if (isAborted || (abortNotice.active && wire.test(abortNotice, nullptr))) {
      isAborted = true;
      throw Aborted();
    }
    try {
      world.checkAlive();
    } catch (const Error &error) {
      throw Error(error.status,
                  std::string(error.what()) + "; " + describe(call) +
                      " over ranks " + print(call.members) + " waits for it",
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

  // Members of a group start their collectives in one order, but those of two
  // groups that share two members may be under way at the same time: messages
  // of a pair have a tag per group, counted in the order of preparation, which
  // both see alike.
  int tagOf(const std::vector<int> &members, int peer) {
    std::map<std::vector<int>, int> &known = groups[peer];
    int index = known.emplace(members, known.size()).first->second;
    if ((index + 1) * phases > abortTag)
      fail(CLEAVE_UNSUPPORTED,
           "ranks " + print(members) + " are in too many different groups");
    return index * phases;
  }

  int64_t &turnOf(const std::vector<int> &members) { return turns[members]; }

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
        elementSize(program::sizeOf(call.dtype)),
        size(static_cast<int>(call.members.size())), sources(size), peers(size),
        turn(endpoint.turnOf(call.members)) {
    for (int member = 0; member < size; ++member)
      peers[member].tag =
          member == call.self
              ? 0
              : endpoint.tagOf(call.members, call.members[member]);
    header.signature = signatureOf(call);
    std::string what = describe(call);
    std::memcpy(header.what, what.data(),
                std::min(what.size(), sizeof(header.what) - 1));
    plan();
    for (std::vector<Parcel> &phase : parcels)
      for (Parcel &parcel : phase) {
        int64_t longest = transport.options.longestMessage;
        parcel.pieces.resize((parcel.bytes + longest - 1) / longest);
        Peer &peer = peers[parcel.member];
        (parcel.isIncoming ? peer.isHeard : peer.isTold) = true;
      }
  }

  ~MpiOperation() override {
    for (Peer &peer : peers) {
      wire.drop(peer.arrival, true);
      wire.drop(peer.notice, false);
    }
    for (std::vector<Parcel> &phase : parcels)
      for (Parcel &parcel : phase)
        for (Wire::Request &piece : parcel.pieces)
          wire.drop(piece, parcel.isIncoming);
  }

  void start() override {
    transport.check(call);
    header.turn = ++turn;
    for (int member = 0; member < size; ++member) {
      Peer &peer = peers[member];
      if (peer.isHeard)
        wire.receive(peer.arrival, transport.channel, call.members[member],
                     peer.tag + Meeting, &peer.header, sizeof(Header));
    }
    post(First, /*incoming=*/true);
    for (int member = 0; member < size; ++member) {
      Peer &peer = peers[member];
      if (peer.isTold)
        wire.send(peer.notice, transport.channel, call.members[member],
                  peer.tag + Meeting, &header, sizeof(Header));
    }
    post(First, /*incoming=*/false);
  }

  void finish() override {
    mine().calls.fetch_add(1, std::memory_order_relaxed);
    transport.check(call);
    wait(First);
    switch (call.kind) {
    case CollectiveKind::AllReduce:
      reduceChunk();
      post(Second, /*incoming=*/true);
      post(Second, /*incoming=*/false);
      wait(Second);
      release(Second);
      break;
    case CollectiveKind::ReduceScatter:
      reduceBlocks();
      break;
    case CollectiveKind::Exchange:
      assemble();
      break;
    default:
      copyOwn();
    }
    release(First);
  }

private:
  struct Peer {
    int tag = 0;
    bool isHeard = false, isTold = false; // sends to us, hears from us
    Header header;
    Wire::Request arrival, notice;
  };

  Counters::Entry &mine() {
    return transport.counters.at(call.members[call.self], call.purpose);
  }

  //--- What goes where -----------------------------------------------------

  // Calls body(part, begin, end) for the pieces of chunk `member`, where the
  // parts are laid end to end and cut into ceil(total / size) elements.
  template <class Body> void forChunk(int member, Body body) const {
    int64_t total = 0;
    for (const Part &part : call.parts)
      total += part.count;
    int64_t chunk = (total + size - 1) / size;
    int64_t low = chunk * member, high = std::min(low + chunk, total);
    int64_t base = 0;
    for (const Part &part : call.parts) {
      int64_t begin = std::max<int64_t>(low - base, 0);
      int64_t end = std::min(high - base, part.count);
      if (begin < end)
        body(part, begin, end);
      base += part.count;
    }
  }

  Rows dense(char *at, int64_t elements) const {
    int64_t bytes = elements * elementSize;
    return {at, 1, bytes, bytes};
  }
  // Block `member` of [outer, size, inner] at `at`.
  Rows block(char *at, int member, int64_t outer, int64_t inner) const {
    int64_t row = inner * elementSize;
    return {at + member * row, outer, row, size * row};
  }

  void plan() {
    for (int step = 1; step < size; ++step) {
      int to = (call.self + step) % size;
      int from = (call.self + size - step) % size;
      Parcel out(to, false), in(from, true), outNext(to, false),
          inNext(from, true);
      switch (call.kind) {
      case CollectiveKind::AllReduce:
        forChunk(to, [&](const Part &part, int64_t begin, int64_t end) {
          out.add(dense(part.src + begin * elementSize, end - begin));
        });
        forChunk(call.self, [&](const Part &part, int64_t begin, int64_t end) {
          in.bytes += (end - begin) * elementSize;
          outNext.add(dense(part.dst + begin * elementSize, end - begin));
        });
        forChunk(from, [&](const Part &part, int64_t begin, int64_t end) {
          inNext.add(dense(part.dst + begin * elementSize, end - begin));
        });
        break;
      case CollectiveKind::AllGather:
        for (const Part &part : call.parts) {
          out.add(dense(part.src, part.count));
          in.add(block(part.dst, from, part.outer, part.inner));
        }
        break;
      case CollectiveKind::ReduceScatter:
        for (const Part &part : call.parts) {
          out.add(block(part.src, to, part.outer, part.inner));
          in.bytes += part.count * elementSize;
        }
        break;
      case CollectiveKind::AllToAll:
        for (const Part &part : call.parts) {
          out.add(block(part.src, to, part.outer, part.inner));
          in.add(block(part.dst, from, part.dstOuter, part.dstInner));
        }
        break;
      case CollectiveKind::Permute:
        for (const Part &part : call.parts) {
          if (call.sources[to] == call.self)
            out.add(dense(part.src, part.count));
          if (call.sources[call.self] == from)
            in.add(dense(part.dst, part.count));
        }
        break;
      case CollectiveKind::Broadcast:
        for (const Part &part : call.parts) {
          if (call.root == call.self)
            out.add(dense(part.src, part.count));
          if (call.root == from)
            in.add(dense(part.dst, part.count));
        }
        break;
      case CollectiveKind::Exchange:
        for (const Part &part : call.parts)
          for (const program::ExchangePiece &piece : part.pieces) {
            if (piece.receiver == to && isSentBy(piece, call.self))
              forRows(part, piece, [&](int64_t src, int64_t, int64_t bytes) {
                out.add({part.src + src, 1, bytes, bytes});
              });
            if (piece.receiver == call.self && isSentBy(piece, from))
              in.bytes += piece.count() * elementSize;
          }
        break;
      }
      keep(First, std::move(out));
      keep(First, std::move(in));
      keep(Second, std::move(outNext));
      keep(Second, std::move(inNext));
      // All wait for all: the watchdog can then tell who never came.
      if (call.kind != CollectiveKind::Permute &&
          call.kind != CollectiveKind::Broadcast &&
          call.kind != CollectiveKind::Exchange)
        peers[to].isTold = peers[from].isHeard = true;
    }
  }

  static bool isSentBy(const program::ExchangePiece &piece, int member) {
    return std::find(piece.senders.begin(), piece.senders.end(), member) !=
           piece.senders.end();
  }

  // Calls body(offset in the sender's tile, in the receiver's, bytes) for the
  // rows of a box.
  template <class Body>
  void forRows(const Part &part, const program::ExchangePiece &piece,
               Body body) const {
    size_t rank = piece.sizes.size();
    int64_t row = rank ? piece.sizes.back() : 1;
    int64_t rows = row ? piece.count() / row : 0;
    for (int64_t number = 0; number < rows; ++number) {
      int64_t src = rank ? piece.srcAt.back() : 0;
      int64_t dst = rank ? piece.dstAt.back() : 0;
      int64_t rest = number;
      for (size_t dim = rank; dim-- > 1; rest /= piece.sizes[dim - 1]) {
        int64_t at = rest % piece.sizes[dim - 1];
        src += (piece.srcAt[dim - 1] + at) * part.srcStrides[dim - 1];
        dst += (piece.dstAt[dim - 1] + at) * part.dstStrides[dim - 1];
      }
      body(src * elementSize, dst * elementSize, row * elementSize);
    }
  }

  void keep(Phase phase, Parcel parcel) {
    if (parcel.bytes)
      parcels[phase].push_back(std::move(parcel));
  }

  //--- Messages ------------------------------------------------------------

  void post(Phase phase, bool incoming) {
    for (Parcel &parcel : parcels[phase]) {
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
      int tag = peers[parcel.member].tag + phase;
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

  // Where a piece of a message begins, and its length.
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

  // Until all messages of the phase have arrived and all sent ones have left.
  void wait(Phase phase) {
    Patience patience(transport.options.spin);
    Clock::time_point deadline =
        Clock::now() +
        std::chrono::duration_cast<Clock::duration>(
            std::chrono::duration<double>(transport.options.timeoutSeconds));
    while (!advance(phase)) {
      transport.check(call);
      if (Clock::now() > deadline)
        timeOut(phase);
      patience.wait();
    }
  }

  bool advance(Phase phase) {
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
    for (Parcel &parcel : parcels[phase])
      // Before it is known what a peer sends, its data is not looked at.
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

  [[noreturn]] void timeOut(Phase phase) const {
    std::vector<int> missing;
    for (int member = 0; member < size; ++member)
      if (peers[member].arrival.active)
        missing.push_back(call.members[member]);
    // All came, but somebody stopped on the way.
    if (missing.empty())
      for (const Parcel &parcel : parcels[phase])
        for (const Wire::Request &request : parcel.pieces)
          if (request.active && (missing.empty() ||
                                 missing.back() != call.members[parcel.member]))
            missing.push_back(call.members[parcel.member]);
    std::sort(missing.begin(), missing.end());
    transport.world.lose();
    char seconds[32];
    snprintf(seconds, sizeof(seconds), "%g", transport.options.timeoutSeconds);
    throw Error(CLEAVE_TIMEOUT,
                describe(call) + " over ranks " + print(call.members) +
                    " timed out after " + seconds +
                    " s: missing ranks: " + print(missing),
                missing.empty() ? -1 : missing.front());
  }

  void release(Phase phase) {
    for (Parcel &parcel : parcels[phase])
      if (parcel.scratch) {
        endpoint.scratch.give(parcel.scratch);
        parcel.scratch = nullptr;
      }
  }

  //--- What is done with it ------------------------------------------------

  // Points `sources` at the contributions that begin `offset` bytes into what
  // each member sent.
  void aim(int64_t offset, const char *own) {
    for (const Parcel &parcel : parcels[First])
      if (parcel.isIncoming)
        sources[parcel.member] = parcel.memory + offset;
    sources[call.self] = own;
  }

  void reduceChunk() {
    int64_t offset = 0;
    forChunk(call.self, [&](const Part &part, int64_t begin, int64_t end) {
      aim(offset, part.src + begin * elementSize);
      reduceInto(part.dst + begin * elementSize, sources, end - begin,
                 call.dtype, call.reduce);
      offset += (end - begin) * elementSize;
    });
  }

  void reduceBlocks() {
    int64_t offset = 0;
    for (const Part &part : call.parts) {
      int64_t row = part.inner * elementSize;
      for (int64_t o = 0; o < part.outer && row; ++o, offset += row) {
        aim(offset, part.src + (o * size + call.self) * row);
        reduceInto(part.dst + o * row, sources, part.inner, call.dtype,
                   call.reduce);
      }
    }
  }

  // Puts our tile together from boxes, which came from each sender in the order
  // of the pieces.
  void assemble() {
    std::vector<const char *> &next = sources;
    for (const Parcel &parcel : parcels[First])
      if (parcel.isIncoming)
        next[parcel.member] = parcel.memory;
    for (const Part &part : call.parts)
      for (const program::ExchangePiece &piece : part.pieces) {
        if (piece.receiver != call.self)
          continue;
        addends.resize(piece.senders.size());
        forRows(part, piece, [&](int64_t src, int64_t dst, int64_t bytes) {
          for (size_t i = 0; i < addends.size(); ++i) {
            int sender = piece.senders[i];
            addends[i] = sender == call.self ? part.src + src : next[sender];
            if (sender != call.self)
              next[sender] += bytes;
          }
          if (addends.size() == 1)
            std::memcpy(part.dst + dst, addends[0], bytes);
          else
            reduceInto(part.dst + dst, addends, bytes / elementSize, call.dtype,
                       call.reduce);
        });
      }
  }

  // A member's message to itself.
  void copyOwn() {
    for (const Part &part : call.parts) {
      Rows from = dense(part.src, part.count), to = dense(part.dst, part.count);
      if (call.kind == CollectiveKind::AllGather) {
        to = block(part.dst, call.self, part.outer, part.inner);
      } else if (call.kind == CollectiveKind::AllToAll) {
        from = block(part.src, call.self, part.outer, part.inner);
        to = block(part.dst, call.self, part.dstOuter, part.dstInner);
      } else if (call.kind == CollectiveKind::Permute) {
        if (call.sources[call.self] < 0)
          std::memset(part.dst, 0, to.bytes);
        if (call.sources[call.self] != call.self)
          continue;
      } else if (call.root != call.self) {
        continue;
      }
      copyRows(from, to);
    }
  }

  // One sequence of bytes, cut into rows differently on both sides.
  static void copyRows(const Rows &from, const Rows &to) {
    for (int64_t at = 0, total = from.total(); at < total;) {
      int64_t srcColumn = at % from.bytes, dstColumn = at % to.bytes;
      int64_t run = std::min(from.bytes - srcColumn, to.bytes - dstColumn);
      char *src = from.at + at / from.bytes * from.stride + srcColumn;
      char *dst = to.at + at / to.bytes * to.stride + dstColumn;
      if (src != dst)
        std::memcpy(dst, src, run);
      at += run;
    }
  }

  const CollectiveCall call;
  MpiEndpoint &endpoint;
  MpiTransport &transport;
  Wire &wire;
  const int64_t elementSize;
  const int size;
  std::vector<const char *> sources, addends;
  std::vector<Peer> peers;
  std::vector<Parcel> parcels[phases];
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
