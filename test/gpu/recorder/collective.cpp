// NCCL calls that the members of a communicator make together. Calls are
// matched when they are enqueued, and run when the last member's stream reaches
// its part.

#include "collective.h"

#include "hub.h"
#include "numbers.h"

#include <cstring>
#include <type_traits>

using namespace recorder;

namespace {
const char *const kindNames[] = {"all-reduce", "all-gather", "reduce-scatter",
                                 "broadcast",  "send",       "receive"};

const char *nameOf(ncclDataType_t type) {
  switch (type) {
  case ncclFloat32:
    return "f32";
  case ncclFloat64:
    return "f64";
  case ncclBfloat16:
    return "bf16";
  case ncclInt64:
    return "i64";
  case ncclInt32:
    return "i32";
  case ncclInt8:
    return "i8";
  case ncclUint8:
    return "u8";
  default:
    return "another type";
  }
}

template <class T> T reduceTwo(T a, T b, ncclRedOp_t op) {
  if (op == ncclSum) {
    if constexpr (std::is_integral_v<T>)
      return T(std::make_unsigned_t<T>(a) + std::make_unsigned_t<T>(b));
    else
      return a + b;
  }
  if (op == ncclMax)
    return a > b || a != a ? a : b;
  return a < b || a != a ? a : b;
}

// Reduces the operands in the order of the ranks. NCCL reduces in another
// order.
template <class T>
void reduce(char *dst, const std::vector<const char *> &srcs, int64_t count,
            ncclRedOp_t op) {
  for (int64_t i = 0; i < count; ++i) {
    T sum = reinterpret_cast<const T *>(srcs[0])[i];
    for (size_t s = 1; s < srcs.size(); ++s)
      sum = reduceTwo(sum, reinterpret_cast<const T *>(srcs[s])[i], op);
    reinterpret_cast<T *>(dst)[i] = sum;
  }
}

void reduceHalves(char *dst, const std::vector<const char *> &srcs,
                  int64_t count, ncclRedOp_t op) {
  for (int64_t i = 0; i < count; ++i) {
    float sum = widen(reinterpret_cast<const uint16_t *>(srcs[0])[i]);
    for (size_t s = 1; s < srcs.size(); ++s)
      sum = reduceTwo(
          sum, widen(reinterpret_cast<const uint16_t *>(srcs[s])[i]), op);
    reinterpret_cast<uint16_t *>(dst)[i] = narrow(sum);
  }
}

void reduce(char *dst, const std::vector<const char *> &srcs, int64_t count,
            ncclDataType_t type, ncclRedOp_t op) {
  switch (type) {
  case ncclFloat32:
    return reduce<float>(dst, srcs, count, op);
  case ncclFloat64:
    return reduce<double>(dst, srcs, count, op);
  case ncclBfloat16:
    return reduceHalves(dst, srcs, count, op);
  case ncclInt64:
    return reduce<int64_t>(dst, srcs, count, op);
  case ncclInt32:
    return reduce<int32_t>(dst, srcs, count, op);
  case ncclInt8:
    return reduce<int8_t>(dst, srcs, count, op);
  default:
    return reduce<uint8_t>(dst, srcs, count, op);
  }
}

class Parts : public Meeting {
public:
  struct Part {
    std::shared_ptr<Exchange> exchange;
    int self;
    Communicator *communicator;
  };
  std::vector<Part> parts;

  void arrive(const Clock &clock) override {
    for (Part &part : parts) {
      Exchange::Member &mine = part.exchange->members[part.self];
      mine.clock = clock;
      mine.hasArrived = true;
    }
    for (Part &part : parts) {
      Exchange &exchange = *part.exchange;
      bool isComplete = true;
      for (const Exchange::Member &member : exchange.members)
        isComplete = isComplete && member.hasArrived;
      if (isComplete && !exchange.isDone) {
        if (!exchange.isBroken)
          exchange.run();
        exchange.isDone = true;
      }
    }
  }

  bool isDone() const override {
    for (const Part &part : parts)
      if (!part.exchange->isDone && !part.communicator->isAborted)
        return false;
    return true;
  }

  void leave(Clock &clock) override {
    for (Part &part : parts) {
      --part.communicator->pending;
      if (!part.exchange->isDone) // aborted
        continue;
      const std::vector<Exchange::Member> &members = part.exchange->members;
      const Call &call = members[part.self].call;
      for (size_t i = 0; i < members.size(); ++i) {
        bool isHeard = call.kind == Call::Broadcast ? int(i) == call.peer
                                                    : call.kind != Call::Send;
        if (isHeard && int(i) != part.self) {
          clock.join(members[i].clock);
          ++Recorder::get().report.totals.edges;
        }
      }
    }
  }

  std::string missing() const override {
    std::string out;
    for (const Part &part : parts)
      for (size_t i = 0; i < part.exchange->members.size(); ++i)
        if (!part.exchange->members[i].hasArrived)
          out += (out.empty() ? "member " : ", ") +
                 std::to_string(part.exchange->ranks[i]);
    return out;
  }
};
} // namespace

bool recorder::agree(const Call &a, const Call &b) {
  if (a.isMessage())
    return a.count * sizeOf(a.type) == b.count * sizeOf(b.type) &&
           a.type == b.type;
  bool isReduced = a.kind == Call::AllReduce || a.kind == Call::ReduceScatter;
  return a.kind == b.kind && a.count == b.count && a.type == b.type &&
         (!isReduced || a.op == b.op) &&
         (a.kind != Call::Broadcast || a.peer == b.peer);
}

int64_t recorder::sizeOf(ncclDataType_t type) {
  switch (type) {
  case ncclFloat64:
  case ncclInt64:
    return 8;
  case ncclFloat32:
  case ncclInt32:
    return 4;
  case ncclBfloat16:
    return 2;
  case ncclInt8:
  case ncclUint8:
    return 1;
  default:
    return 0;
  }
}

std::string Call::text() const {
  std::string out = std::string(kindNames[kind]) + " of " +
                    std::to_string(count) + " " + nameOf(type);
  if (kind == Send)
    out += " to member " + std::to_string(peer);
  if (kind == Receive)
    out += " from member " + std::to_string(peer);
  return out;
}

std::vector<Access> Call::accesses() const {
  int64_t bytes = count * sizeOf(type), size = communicator->group->size;
  auto read = [&](int64_t bytes) {
    return Access{const_cast<char *>(src), bytes, false};
  };
  auto write = [&](int64_t bytes) { return Access{dst, bytes, true}; };
  switch (kind) {
  case AllReduce:
    return {read(bytes), write(bytes)};
  case AllGather:
    return {read(bytes), write(bytes * size)};
  case ReduceScatter:
    return {read(bytes * size), write(bytes)};
  case Broadcast:
    if (communicator->rank == peer)
      return {read(bytes), write(bytes)};
    return {write(bytes)};
  case Send:
    return {read(bytes)};
  case Receive:
    return {write(bytes)};
  }
  return {};
}

void Exchange::run() {
  const Call &first = members[0].call;
  int64_t bytes = first.count * sizeOf(first.type);
  std::vector<const char *> srcs(members.size());
  std::vector<std::vector<char>> results(members.size());
  if (first.isMessage()) {
    std::memmove(members[1].call.dst, first.src, bytes);
    return;
  }
  // All results are computed before the first one is written, because a result
  // may overwrite an operand.
  for (size_t to = 0; to < members.size(); ++to) {
    std::vector<char> &result = results[to];
    int64_t offset =
        first.kind == Call::ReduceScatter ? int64_t(to) * bytes : 0;
    for (size_t i = 0; i < members.size(); ++i)
      srcs[i] = members[i].call.src + offset;
    result.resize(bytes);
    if (first.kind == Call::AllGather) {
      result.clear();
      for (const char *src : srcs)
        result.insert(result.end(), src, src + bytes);
    } else if (first.kind == Call::Broadcast) {
      std::memcpy(result.data(), srcs[first.peer], bytes);
    } else {
      reduce(result.data(), srcs, first.count, first.type, first.op);
    }
  }
  for (size_t to = 0; to < members.size(); ++to)
    std::memcpy(members[to].call.dst, results[to].data(), results[to].size());
}

std::shared_ptr<Meeting> recorder::meet(const std::vector<Call> &calls,
                                        const std::shared_ptr<const Who> &who) {
  if (calls.front().communicator->line)
    return meetElsewhere(calls, who);
  auto parts = std::make_shared<Parts>();
  for (const Call &call : calls) {
    Communicator &mine = *call.communicator;
    Group &group = *mine.group;
    std::shared_ptr<Exchange> exchange;
    int self = mine.rank;
    if (call.isMessage()) {
      bool sends = call.kind == Call::Send;
      std::pair<int, int> pair = sends ? std::pair(mine.rank, call.peer)
                                       : std::pair(call.peer, mine.rank);
      auto &messages = group.messages[pair];
      uint64_t number = (sends ? mine.sent : mine.received)[call.peer]++;
      std::shared_ptr<Exchange> &found = messages[number];
      if (!found) {
        found = std::make_shared<Exchange>();
        found->members.resize(2);
        found->ranks = {pair.first, pair.second};
      }
      exchange = found;
      self = sends ? 0 : 1;
      if (exchange->members[1 - self].isKnown)
        messages.erase(number);
    } else {
      uint64_t number = mine.started++;
      std::shared_ptr<Exchange> &found = group.collectives[number];
      if (!found) {
        found = std::make_shared<Exchange>();
        found->members.resize(group.size);
        for (int rank = 0; rank < group.size; ++rank)
          found->ranks.push_back(rank);
      }
      exchange = found;
      int known = 1;
      for (const Exchange::Member &member : exchange->members)
        known += member.isKnown;
      if (known == group.size)
        group.collectives.erase(number);
    }
    for (Exchange::Member &other : exchange->members)
      if (other.isKnown && !agree(other.call, call)) {
        Recorder::get().report.error(
            "members of a communicator differ: " + who->text() + " is " +
            call.text() + ", " + other.who->text() + " is " +
            other.call.text());
        exchange->isBroken = true;
        break;
      }
    Exchange::Member &member = exchange->members[self];
    member.isKnown = true;
    member.call = call;
    member.who = who;
    ++mine.pending;
    parts->parts.push_back({exchange, self, &mine});
  }
  return parts;
}
