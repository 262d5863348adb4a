// The conformance suite's sweep: every kind of collective over every kind of
// group, in all element types, with several buffers of uneven sizes in one call
// and several calls in flight at once. The expected result of each rank is
// computed element by element from the inputs of all ranks.

#include "Conformance.h"

#include <cstring>

using namespace cleave;
using namespace cleave::program;
using namespace cleave::test;

namespace {
// Encodes the integer `value` as an element of the type.
void encode(DType dtype, int value, char *out) {
  auto put = [&](auto typed) { std::memcpy(out, &typed, sizeof(typed)); };
  float single = float(value);
  switch (dtype) {
  case DType::F32:
    return put(single);
  case DType::F64:
    return put(double(value));
  case DType::BF16: {
    uint32_t bits;
    std::memcpy(&bits, &single, 4);
    return put(uint16_t(bits >> 16));
  }
  case DType::I64:
    return put(int64_t(value));
  case DType::I32:
    return put(int32_t(value));
  case DType::I8:
  case DType::U8:
    return put(int8_t(value));
  }
}

// The initial contents of buffer number `part` of a rank. The values are small,
// so that they are exact in all types; u8 holds booleans.
int input(DType dtype, int rank, size_t part, int64_t element) {
  int value = int((rank * 5 + int64_t(part) * 3 + element * 7) % 11);
  return dtype == DType::U8 ? value & 1 : value;
}

struct Shape {
  int64_t outer, inner, dstOuter;
  int64_t count() const { return outer * inner; }
};

// One collective on one rank: its buffers and their expected contents.
class Sample {
public:
  Sample(CollectiveKind kind, std::vector<int> members, int rank, DType dtype,
         ReduceOp reduce, const std::vector<Shape> &shapes, int purpose)
      : shapes(shapes), size(sizeOf(dtype)) {
    call.kind = kind;
    call.members = std::move(members);
    call.dtype = dtype;
    call.reduce = reduce;
    call.purpose = purpose;
    call.name = "\"sweep\" (test)";
    group = static_cast<int>(call.members.size());
    for (int i = 0; i < group; ++i)
      if (call.members[i] == rank)
        call.self = i;
    // In the permute, the first member sends to no member, and the last member
    // receives zeros.
    for (int i = 0; i < group; ++i)
      call.sources.push_back(i + 1 < group ? i + 1 : -1);
    call.root = group - 1;
    for (size_t i = 0; i < shapes.size(); ++i)
      addPart(i, rank);
  }

  void check() const {
    for (size_t i = 0; i < shapes.size(); ++i) {
      std::string where = std::string(nameOf(call.kind)) + " of " +
                          nameOf(call.dtype) + ", part " + std::to_string(i) +
                          ", member " + std::to_string(call.self) + " of " +
                          std::to_string(group);
      EXPECT_EQ(dst[i], expected[i]) << where;
    }
  }

  // The number of bytes that this rank should receive, computed from the shapes
  // alone.
  int64_t receivedBytes() const {
    int64_t total = 0;
    for (const Shape &shape : shapes)
      total += shape.count();
    switch (call.kind) {
    case CollectiveKind::AllReduce: {
      int64_t chunk = (total + group - 1) / group;
      int64_t own = std::clamp<int64_t>(total - chunk * call.self, 0, chunk);
      return ((group - 1) * own + total - own) * size;
    }
    case CollectiveKind::Permute:
      return call.sources[call.self] < 0 ? 0 : total * size;
    case CollectiveKind::Broadcast:
      return call.self == call.root ? 0 : total * size;
    default:
      return (group - 1) * total * size;
    }
  }

  CollectiveCall call;

private:
  bool gathers() const {
    return call.kind == CollectiveKind::AllGather ||
           call.kind == CollectiveKind::AllToAll;
  }
  bool spreads() const {
    return call.kind == CollectiveKind::ReduceScatter ||
           call.kind == CollectiveKind::AllToAll;
  }

  void addPart(size_t index, int rank) {
    const Shape &shape = shapes[index];
    int64_t in = shape.count() * (spreads() ? group : 1);
    int64_t out = shape.count() * (gathers() ? group : 1);
    std::vector<char> &from = src.emplace_back(in * size);
    for (int64_t i = 0; i < in; ++i)
      encode(call.dtype, input(call.dtype, rank, index, i),
             from.data() + i * size);
    std::vector<char> &to = dst.emplace_back(out * size, char(0x5a));
    std::vector<char> &want = expected.emplace_back(out * size);
    for (int64_t i = 0; i < out; ++i)
      encode(call.dtype, result(index, i), want.data() + i * size);
    Part part;
    part.src = from.data();
    part.dst = to.data();
    // Every second call is in place, if its kind allows that.
    if (index % 2 && (call.kind == CollectiveKind::AllReduce ||
                      call.kind == CollectiveKind::Broadcast)) {
      to = from;
      part.src = part.dst = to.data();
    }
    part.count = shape.count();
    part.outer = shape.outer, part.inner = shape.inner;
    part.dstOuter = shape.dstOuter;
    part.dstInner = shape.dstOuter ? shape.count() / shape.dstOuter : 0;
    call.parts.push_back(part);
  }

  // Returns the expected element i of this rank's dst.
  int result(size_t index, int64_t i) const {
    const Shape &shape = shapes[index];
    auto of = [&](int member, int64_t element) {
      return input(call.dtype, call.members[member], index, element);
    };
    auto reduced = [&](int64_t element) {
      int value = of(0, element);
      for (int member = 1; member < group; ++member) {
        int next = of(member, element);
        value = call.reduce == ReduceOp::Sum   ? value + next
                : call.reduce == ReduceOp::Max ? std::max(value, next)
                                               : std::min(value, next);
      }
      return call.dtype == DType::U8 ? value & 1 : value; // the sum wraps
    };
    switch (call.kind) {
    case CollectiveKind::AllReduce:
      return reduced(i);
    case CollectiveKind::AllGather: { // [outer, N, inner]
      int64_t column = i % shape.inner, block = i / shape.inner;
      return of(int(block % group), block / group * shape.inner + column);
    }
    case CollectiveKind::ReduceScatter: {
      int64_t column = i % shape.inner, row = i / shape.inner;
      return reduced((row * group + call.self) * shape.inner + column);
    }
    case CollectiveKind::AllToAll: { // [dstOuter, N, dstInner]
      int64_t width = shape.count() / shape.dstOuter;
      int64_t block = i / width;
      int64_t element = block / group * width + i % width; // of the message
      int64_t row = element / shape.inner, column = element % shape.inner;
      return of(int(block % group),
                (row * group + call.self) * shape.inner + column);
    }
    case CollectiveKind::Permute:
      return call.sources[call.self] < 0 ? 0 : of(call.sources[call.self], i);
    default:
      return of(call.root, i);
    }
  }

  std::vector<Shape> shapes;
  int64_t size;
  int group = 0;
  std::vector<std::vector<char>> src, dst, expected;
};

constexpr CollectiveKind kinds[] = {
    CollectiveKind::AllReduce,     CollectiveKind::AllGather,
    CollectiveKind::ReduceScatter, CollectiveKind::AllToAll,
    CollectiveKind::Permute,       CollectiveKind::Broadcast};

// Partitions of the ranks into groups: all ranks, groups along either mesh
// axis, unordered and uneven groups, and groups of one rank.
const std::vector<std::vector<std::vector<int>>> partitions = {
    {{0, 1, 2, 3}}, {{0, 1}, {2, 3}},   {{0, 2}, {1, 3}},
    {{3, 1, 0}},    {{2, 0, 3, 1}},     {{1}, {3, 0}},
    {{0, 1, 2}},    {{2}, {0, 1}, {3}}, {{3, 2}, {1, 0}}};

const std::vector<int> *groupOf(const std::vector<std::vector<int>> &partition,
                                int rank) {
  for (const std::vector<int> &group : partition)
    for (int member : group)
      if (member == rank)
        return &group;
  return nullptr;
}

const std::vector<Shape> uneven = {{1, 5, 5}, {3, 14, 6}, {1, 0, 1}, {2, 1, 1}};

void expectBytes(Counters &counters, int rank, int purpose, int64_t received) {
  EXPECT_EQ(counters.at(rank, purpose).received, received);
}

TEST_P(Conformance, EveryKindOverEveryGroup) {
  run(4, [&](int rank, Endpoint &endpoint, Counters &counters) {
    for (CollectiveKind kind : kinds)
      for (const auto &partition : partitions) {
        const std::vector<int> *group = groupOf(partition, rank);
        if (!group)
          continue;
        counters.at(rank, 1).received = 0;
        Sample sample(kind, *group, rank, DType::F32, ReduceOp::Sum, uneven, 1);
        once(endpoint, sample.call);
        sample.check();
        expectBytes(counters, rank, 1, sample.receivedBytes());
      }
  });
}

TEST_P(Conformance, EveryTypeAndReduction) {
  for (int ranks : {1, 2, 3, 4})
    run(ranks, [&](int rank, Endpoint &endpoint, Counters &) {
      std::vector<int> all;
      for (int member = 0; member < ranks; ++member)
        all.push_back(member);
      for (CollectiveKind kind : kinds)
        for (int type = 0; type <= static_cast<int>(lastDType); ++type)
          for (ReduceOp reduce :
               {ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min}) {
            Sample sample(kind, all, rank, static_cast<DType>(type), reduce,
                          uneven, 0);
            once(endpoint, sample.call);
            sample.check();
          }
    });
}

// Collectives over groups that share members are all started before the first
// is waited for. They are prepared once and run several times, as in a program.
TEST_P(Conformance, SeveralUnderWay) {
  run(4, [&](int rank, Endpoint &endpoint, Counters &counters) {
    std::vector<std::unique_ptr<Sample>> samples;
    std::vector<std::unique_ptr<Operation>> operations;
    int64_t bytes = 0;
    for (const auto &partition : partitions)
      for (CollectiveKind kind : kinds)
        if (const std::vector<int> *group = groupOf(partition, rank)) {
          samples.push_back(std::make_unique<Sample>(
              kind, *group, rank, DType::F64, ReduceOp::Max, uneven, 1));
          operations.push_back(endpoint.prepare(samples.back()->call));
          bytes += samples.back()->receivedBytes();
        }
    constexpr int rounds = 3;
    for (int round = 0; round < rounds; ++round) {
      for (auto &operation : operations)
        operation->start();
      for (auto &operation : operations)
        operation->finish();
      // Each round runs the same calls on the same buffers. An in-place
      // all-reduce then reads the results of the round before. All reductions
      // here are maxima, and the maximum of equal results is the same value, so
      // the expected values do not change.
      for (auto &sample : samples)
        sample->check();
    }
    expectBytes(counters, rank, 1, rounds * bytes);
    EXPECT_EQ(counters.at(rank, 1).calls,
              rounds * static_cast<int64_t>(operations.size()));
  });
}

// Between start and wait of a collective in one group, another group runs a
// whole collective.
TEST_P(Conformance, OneUnderWayWhileAnotherRuns) {
  run(4, [&](int rank, Endpoint &endpoint, Counters &) {
    std::vector<int> row = {rank / 2 * 2, rank / 2 * 2 + 1};
    std::vector<int> all = {0, 1, 2, 3};
    for (CollectiveKind outer : kinds)
      for (CollectiveKind inner : kinds) {
        Sample slow(outer, all, rank, DType::F32, ReduceOp::Sum, uneven, 0);
        Sample fast(inner, row, rank, DType::I32, ReduceOp::Sum, uneven, 0);
        auto one = endpoint.prepare(slow.call);
        auto two = endpoint.prepare(fast.call);
        one->start();
        two->start();
        two->finish();
        one->finish();
        slow.check();
        fast.check();
      }
  });
}

// Messages as large as a tensor of a real model, which do not fit into a queue.
TEST_P(Conformance, LongMessages) {
  const std::vector<Shape> large = {{1, 50000, 1}, {7, 3001, 7}};
  run(4, [&](int rank, Endpoint &endpoint, Counters &counters) {
    int64_t bytes = 0;
    for (CollectiveKind kind : kinds) {
      Sample sample(kind, {0, 1, 2, 3}, rank, DType::F32, ReduceOp::Sum, large,
                    1);
      once(endpoint, sample.call);
      sample.check();
      bytes += sample.receivedBytes();
    }
    expectBytes(counters, rank, 1, bytes);
  });
}
} // namespace
