// The conformance suite of transports. LocalTransportTest.cpp runs it in
// threads, MpiTransportTest.cpp in processes. A new transport needs a new
// subclass of Cluster.

#include "Conformance.h"

#include "error.h"
#include "exchange.h"

#include <chrono>

using namespace cleave;
using namespace cleave::program;
using namespace cleave::test;

namespace {
TEST_P(Conformance, AllReduceSumsInOneOrder) {
  for (int ranks : {1, 2, 3, 4})
    for (int64_t count : {0, 1, 5, 24, 10007}) {
      // All ranks must reduce in the same order: ((r0 + r1) + r2) + ...
      std::vector<std::vector<float>> inputs;
      for (int rank = 0; rank < ranks; ++rank)
        inputs.push_back(randomVector<float>(count, 100 + rank));
      std::vector<float> expected = inputs[0];
      for (int rank = 1; rank < ranks; ++rank)
        for (int64_t i = 0; i < count; ++i)
          expected[i] += inputs[rank][i];
      run(ranks, [&](int rank, Endpoint &endpoint, Counters &) {
        std::vector<float> inPlace = inputs[rank], src = inputs[rank],
                           dst(count, NAN);
        CollectiveCall call = makeCall(CollectiveKind::AllReduce, ranks, rank);
        call.parts = {makePart(inPlace.data(), inPlace.data(), count),
                      makePart(src.data(), dst.data(), count)};
        once(endpoint, call);
        EXPECT_EQ(inPlace, expected);
        EXPECT_EQ(dst, expected);
        EXPECT_EQ(src, inputs[rank]);
      });
    }
}

TEST_P(Conformance, AllReduceMaxMinAndTypes) {
  run(3, [&](int rank, Endpoint &endpoint, Counters &) {
    CollectiveCall call = makeCall(CollectiveKind::AllReduce, 3, rank);
    std::vector<float> high = {float(rank), -float(rank), 7};
    call.reduce = ReduceOp::Max;
    call.parts = {makePart(high.data(), high.data(), 3)};
    once(endpoint, call);
    EXPECT_EQ(high, (std::vector<float>{2, 0, 7}));
    std::vector<int64_t> low = {rank + 5, -rank};
    call.reduce = ReduceOp::Min;
    call.dtype = DType::I64;
    call.parts[0].src = call.parts[0].dst =
        reinterpret_cast<char *>(low.data());
    call.parts[0].count = 2;
    once(endpoint, call);
    EXPECT_EQ(low, (std::vector<int64_t>{5, -2}));
    std::vector<uint16_t> half = {0x3f80, 0x4000}; // 1, 2
    call.reduce = ReduceOp::Sum;
    call.dtype = DType::BF16;
    call.parts[0].src = call.parts[0].dst =
        reinterpret_cast<char *>(half.data());
    once(endpoint, call);
    EXPECT_EQ(half, (std::vector<uint16_t>{0x4040, 0x40c0})); // 3, 6
  });
}

TEST_P(Conformance, AllGatherOfAnyDimension) {
  constexpr int ranks = 3;
  run(ranks, [&](int rank, Endpoint &endpoint, Counters &) {
    // The tile of each rank is [2, 4], the gathered array is [2, 3 * 4].
    std::vector<float> tile(8), whole(24, NAN);
    for (int i = 0; i < 8; ++i)
      tile[i] = float(100 * rank + i);
    CollectiveCall call = makeCall(CollectiveKind::AllGather, ranks, rank);
    Part part = makePart(tile.data(), whole.data(), 8);
    part.outer = 2, part.inner = 4;
    call.parts = {part};
    once(endpoint, call);
    for (int row = 0; row < 2; ++row)
      for (int from = 0; from < ranks; ++from)
        for (int i = 0; i < 4; ++i)
          EXPECT_EQ(whole[row * 12 + from * 4 + i],
                    float(100 * from + row * 4 + i));
    // In place: the operand already is this rank's block of the result.
    std::vector<float> own(12, NAN);
    for (int i = 0; i < 4; ++i)
      own[rank * 4 + i] = float(rank);
    call.parts = {makePart(own.data() + rank * 4, own.data(), 4)};
    once(endpoint, call);
    for (int i = 0; i < 12; ++i)
      EXPECT_EQ(own[i], float(i / 4));
  });
}

TEST_P(Conformance, ReduceScatterOfAnyDimension) {
  constexpr int ranks = 3;
  run(ranks, [&](int rank, Endpoint &endpoint, Counters &) {
    std::vector<float> whole(24), tile(8, NAN);
    for (int i = 0; i < 24; ++i)
      whole[i] = float(i * (rank + 1));
    CollectiveCall call = makeCall(CollectiveKind::ReduceScatter, ranks, rank);
    Part part = makePart(whole.data(), tile.data(), 8);
    part.outer = 2, part.inner = 4;
    call.parts = {part};
    once(endpoint, call);
    for (int row = 0; row < 2; ++row)
      for (int i = 0; i < 4; ++i)
        EXPECT_EQ(tile[row * 4 + i], float((row * 12 + rank * 4 + i) * 6));
    // In place: the result overwrites this rank's block of the operand.
    call.parts = {makePart(whole.data(), whole.data() + rank * 8, 8)};
    once(endpoint, call);
    for (int i = 0; i < 8; ++i)
      EXPECT_EQ(whole[rank * 8 + i], float((rank * 8 + i) * 6));
  });
}

TEST_P(Conformance, AllToAllMovesAShardedDimension) {
  constexpr int ranks = 2;
  // X is [4, 6]. It is resharded from columns to rows, and back.
  auto element = [](int row, int column) { return float(10 * row + column); };
  run(ranks, [&](int rank, Endpoint &endpoint, Counters &) {
    std::vector<float> columns(12), rows(12, NAN), again(12, NAN);
    for (int row = 0; row < 4; ++row)
      for (int c = 0; c < 3; ++c)
        columns[row * 3 + c] = element(row, rank * 3 + c);
    // The source tile has 4 rows and 3 columns. The block for each of the two
    // ranks consists of 2 whole rows, so the tile is [outer = 1, 2 blocks,
    // inner = 6]. The target tile has 2 rows and 6 columns. The block from each
    // rank has 3 elements of every row, so the tile is [dstOuter = 2, 2 blocks,
    // dstInner = 3].
    CollectiveCall call = makeCall(CollectiveKind::AllToAll, ranks, rank);
    Part part = makePart(columns.data(), rows.data(), 6);
    part.outer = 1, part.inner = 6, part.dstOuter = 2, part.dstInner = 3;
    call.parts = {part};
    once(endpoint, call);
    for (int row = 0; row < 2; ++row)
      for (int c = 0; c < 6; ++c)
        EXPECT_EQ(rows[row * 6 + c], element(rank * 2 + row, c));
    part = makePart(rows.data(), again.data(), 6);
    part.outer = 2, part.inner = 3, part.dstOuter = 1, part.dstInner = 6;
    call.parts = {part};
    once(endpoint, call);
    EXPECT_EQ(again, columns);
  });
}

// Rank i sends (i + 2 j) % 4 rows of two elements to rank j, several times with
// other values. Only the bytes of these rows are counted, and the buffer after
// the received rows stays unchanged.
TEST_P(Conformance, AllToAllVSendsAsManyRowsAsThereAre) {
  constexpr int ranks = 3, rows = 3;
  run(ranks, [&](int rank, Endpoint &endpoint, Counters &counters) {
    std::vector<float> src(ranks * rows * 2), dst(src.size());
    std::vector<int64_t> sent(ranks), received(ranks);
    CollectiveCall call = makeCall(CollectiveKind::AllToAllV, ranks, rank);
    Part part = makePart(src.data(), dst.data(), rows * 2);
    part.outer = part.dstOuter = rows, part.inner = part.dstInner = 2;
    call.parts = {part};
    call.sent = sent.data(), call.received = received.data();
    auto operation = endpoint.prepare(call);
    int64_t bytes = 0;
    for (int step = 0; step < 3; ++step) {
      auto count = [&](int from, int to) { return (from + 2 * to + step) % 4; };
      auto element = [&](int from, int to, int i) {
        return float(1000 * step + 100 * from + 10 * to + i);
      };
      for (int peer = 0; peer < ranks; ++peer) {
        sent[peer] = count(rank, peer), received[peer] = count(peer, rank);
        if (peer != rank)
          bytes += sent[peer] * 2 * int64_t(sizeof(float));
        for (int i = 0; i < rows * 2; ++i)
          src[peer * rows * 2 + i] = element(rank, peer, i);
      }
      dst.assign(dst.size(), -1);
      operation->start();
      operation->finish();
      for (int peer = 0; peer < ranks; ++peer)
        for (int i = 0; i < rows * 2; ++i)
          EXPECT_EQ(dst[peer * rows * 2 + i],
                    i < received[peer] * 2 ? element(peer, rank, i) : -1)
              << "step " << step << ", from " << peer << ", element " << i;
    }
    EXPECT_EQ(counters.at(rank, 0).sent, bytes);
  });
}

TEST_P(Conformance, AllToAllVRefusesMoreRowsThanThereAre) {
  run(2, [&](int rank, Endpoint &endpoint, Counters &) {
    std::vector<float> src(4), dst(4);
    std::vector<int64_t> counts = {0, 2};
    CollectiveCall call = makeCall(CollectiveKind::AllToAllV, 2, rank);
    Part part = makePart(src.data(), dst.data(), 2);
    part.outer = part.dstOuter = 1, part.inner = part.dstInner = 2;
    call.parts = {part};
    EXPECT_THROW(rowsOf(call, counts.data(), 1), RuntimeError);
    EXPECT_EQ(rowsOf(call, counts.data(), 0), 0);
    (void)endpoint;
  });
}

TEST_P(Conformance, PermuteAndBroadcast) {
  run(3, [&](int rank, Endpoint &endpoint, Counters &) {
    std::vector<float> src = {float(rank), 1}, dst(2, NAN);
    CollectiveCall call = makeCall(CollectiveKind::Permute, 3, rank);
    call.sources = {2, 0, -1};
    call.parts = {makePart(src.data(), dst.data(), 2)};
    once(endpoint, call);
    std::vector<std::vector<float>> expected = {{2, 1}, {0, 1}, {0, 0}};
    EXPECT_EQ(dst, expected[rank]);
    call.kind = CollectiveKind::Broadcast;
    call.root = 1;
    call.parts = {makePart(src.data(), src.data(), 2)};
    once(endpoint, call);
    EXPECT_EQ(src, (std::vector<float>{1, 1}));
  });
}

// An exchange of a [10, 7] array with uneven tiles, on 4 ranks with the mesh
// a=2, b=2.
struct UnevenExchange {
  Exchange exchange;
  // The least number of elements that each rank must receive.
  std::vector<int64_t> received;
};

std::vector<UnevenExchange> unevenExchanges() {
  SubAxis a = {0, 1, 2}, b = {1, 1, 2};
  return {
      // Before, rows are sharded over a and b (tiles of 3, 3, 3 and 1 rows).
      // After, columns are sharded over b.
      {{{10, 7}, {{a, b}, {}}, {{}, {b}}, {}, {}},
       {40 - 12, 30 - 9, 40 - 12, 30 - 3}},
      // Before, rows are sharded over a (major) and b (minor). After, rows are
      // sharded over b (major) and a (minor).
      {{{10, 7}, {{a, b}, {}}, {{b, a}, {}}, {}, {}}, {0, 21, 21, 0}},
      // Before, rows are sharded over a and replicated over b. After, rows are
      // sharded over b (major) and a (minor).
      {{{10, 7}, {{a}, {}}, {{b, a}, {}}, {}, {}}, {0, 21, 14, 0}},
      // Before, rows are sharded over b and are partial sums over a. After,
      // columns are sharded over a and b, and the sums are complete.
      {{{10, 7}, {{b}, {}}, {{}, {a, b}}, {a}, {}}, {30, 30, 30, 15}},
      // Before, rows are sharded over a and b. After, columns are sharded over
      // b and are partial sums over a. An element of a target tile goes into
      // the partial sum of the rank that already holds it. Elements that
      // neither rank of the tile holds are divided equally between the two
      // partial sums.
      {{{10, 7}, {{a, b}, {}}, {{}, {b}}, {}, {a}}, {8, 9, 8, 9}},
      // Before, rows are sharded over b and are partial sums over a. After, the
      // tensor is complete and replicated. In the first round of messages, each
      // rank adds the partial sums of a quarter of the elements. In the second
      // round, it sends these sums to the other ranks.
      {{{10, 7}, {{b}, {}}, {{}, {}}, {a}, {}, 2}, {70, 70, 70, 70}},
      // Before, rows are sharded over b and are partial sums over a. After,
      // each rank has a whole tensor that is a partial sum over b. In the first
      // round of messages, each of the two ranks along a adds the partial sums
      // of half of the elements that both hold. In the second round, the two
      // ranks copy these sums to each other.
      {{{10, 7}, {{b}, {}}, {{}, {}}, {a}, {b}, 2}, {35, 35, 35, 35}},
      // Before, rows are sharded over b; after, columns are sharded over b.
      // Both tiles are partial sums over a, so the exchange only moves elements
      // and adds nothing.
      {{{10, 7}, {{b}, {}}, {{}, {b}}, {a}, {a}}, {20, 15, 20, 15}},
      // Before, rows are sharded over b and are partial sums over a. After,
      // rows are sharded over a and are partial sums over b. Each element has
      // two partial sums. One of them is already on a rank that needs it and
      // stays there; the elements of the other one are divided equally between
      // the two ranks that need the tile.
      {{{10, 7}, {{b}, {}}, {{a}, {}}, {a}, {b}}, {17, 18, 17, 18}},
  };
}

Program meshOfTwoByTwo() {
  Program program;
  program.mesh = {{"a", 2, ""}, {"b", 2, ""}};
  return program;
}

float valueAt(int64_t row, int64_t column, int64_t term) {
  return float(100 * row + column + 1000 * (term + 1));
}

// Visits the elements of one rank's tile; `at` has the positions of the rank on
// the mesh axes. The body gets the element's offset in the tile, its row and
// its column. Returns the size of the tile with its padding.
template <class Body>
int64_t visitTile(const Program &program,
                  const std::vector<std::vector<SubAxis>> &axes,
                  const std::vector<int64_t> &at, Body body) {
  int64_t rows = (10 + positionsOn(axes[0]) - 1) / positionsOn(axes[0]);
  int64_t columns = (7 + positionsOn(axes[1]) - 1) / positionsOn(axes[1]);
  int64_t row = positionOn(axes[0], program.mesh, at) * rows;
  int64_t column = positionOn(axes[1], program.mesh, at) * columns;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      if (row + r < 10 && column + c < 7)
        body(r * columns + c, row + r, column + c);
  return rows * columns;
}

void expectSame(const std::vector<float> &found,
                const std::vector<float> &expected, int rank) {
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(found[i] == expected[i] ||
                (std::isnan(found[i]) && std::isnan(expected[i])))
        << "rank " << rank << " element " << i << ": " << found[i] << ", not "
        << expected[i];
}

TEST_P(Conformance, ExchangeAssemblesUnevenTiles) {
  const Program program = meshOfTwoByTwo();
  for (const UnevenExchange &test : unevenExchanges()) {
    const Exchange &exchange = test.exchange;
    int64_t terms = positionsOn(exchange.partial);
    run(4, [&](int rank, Endpoint &endpoint, Counters &counters) {
      std::vector<int64_t> at = {rank / 2, rank % 2};
      std::vector<float> src(100, NAN), dst(100, NAN), expected(100, NAN);
      int64_t term = positionOn(exchange.partial, program.mesh, at);
      int64_t count = visitTile(program, exchange.from, at,
                                [&](int64_t i, int64_t row, int64_t column) {
                                  src[i] = valueAt(row, column, term);
                                });
      int64_t target = visitTile(program, exchange.to, at,
                                 [&](int64_t i, int64_t row, int64_t column) {
                                   expected[i] = 0;
                                   for (int64_t k = 0; k < terms; ++k)
                                     expected[i] += valueAt(row, column, k);
                                 });
      CollectiveCall call = makeCall(CollectiveKind::Exchange, 4, rank);
      Part part = makePart(src.data(), dst.data(), count);
      part.dstInner = target;
      prepareExchange(program, exchange, call.members, rank, part);
      call.parts = {part};
      once(endpoint, call);
      EXPECT_EQ(counters.at(rank, 0).received, 4 * test.received[rank]);
      // The sum of the result's partial sums must equal the expected tile.
      for (const SubAxis &sub : exchange.toPartial) {
        CollectiveCall sum = makeCall(CollectiveKind::AllReduce, 2, 0);
        int stride = sub.axis == 0 ? 2 : 1, place = rank / stride % 2;
        sum.self = place;
        sum.members = {rank - place * stride, rank + (1 - place) * stride};
        sum.parts = {makePart(dst.data(), dst.data(), target)};
        once(endpoint, sum);
      }
      expectSame(dst, expected, rank);
    });
  }
}

// Runs collectives in two groups along one axis, then in two groups along the
// other axis, many times.
TEST_P(Conformance, GroupsDoNotDisturbEachOther) {
  run(4, [&](int rank, Endpoint &endpoint, Counters &) {
    std::vector<float> value(3);
    CollectiveCall row = makeCall(CollectiveKind::AllReduce, 2, rank % 2);
    row.members = {rank / 2 * 2, rank / 2 * 2 + 1};
    row.parts = {makePart(value.data(), value.data(), 3)};
    CollectiveCall column = row;
    column.self = rank / 2;
    column.members = {rank % 2, rank % 2 + 2};
    auto along = endpoint.prepare(row), across = endpoint.prepare(column);
    for (int round = 0; round < 100; ++round) {
      value.assign(3, float(rank + round));
      along->start();
      along->finish();
      across->start();
      across->finish();
      ASSERT_EQ(value, std::vector<float>(3, float(6 + 4 * round)));
    }
  });
}

// Checks how many bytes each rank sends and receives, for each kind of
// collective.
TEST_P(Conformance, CountedBytesFollowTheFormulas) {
  constexpr int N = 4;
  constexpr int64_t count = 48, S = count * 4;
  struct Expected {
    CollectiveKind kind;
    int64_t tile, bytes;
  };
  for (Expected expected :
       {Expected{CollectiveKind::AllReduce, count, 2 * (N - 1) * S / N},
        Expected{CollectiveKind::AllGather, count / N, (N - 1) * S / N},
        Expected{CollectiveKind::ReduceScatter, count / N, (N - 1) * S / N},
        Expected{CollectiveKind::AllToAll, count / N, (N - 1) * S / N}}) {
    run(N, [&](int rank, Endpoint &endpoint, Counters &counters) {
      std::vector<float> src(count, 1), dst(count);
      CollectiveCall call = makeCall(expected.kind, N, rank);
      call.purpose = 1;
      call.parts = {makePart(src.data(), dst.data(), expected.tile)};
      once(endpoint, call);
      EXPECT_EQ(counters.at(rank, 1).received, expected.bytes);
      EXPECT_EQ(counters.at(rank, 0).received, 0);
      EXPECT_EQ(counters.at(rank, 1).calls, 1);
      // The transport must count the sent bytes before the operation ends on
      // the sender's rank.
      EXPECT_EQ(counters.at(rank, 1).sent, expected.bytes);
    });
  }
}

TEST_P(Conformance, AbortWakesAllWaiters) {
  auto start = std::chrono::steady_clock::now();
  cluster->run(
      4, 60,
      [&](int rank, Endpoint &endpoint, Counters &) {
        if (rank == 3)
          throw RuntimeError(CLEAVE_RANK_FAILED, "deliberate");
        float value = 0;
        CollectiveCall call = makeCall(CollectiveKind::AllReduce, 4, rank);
        call.parts = {makePart(&value, &value, 1)};
        EXPECT_THROW(once(endpoint, call), Aborted);
        cluster->tell(rank, "woken");
        EXPECT_THROW(once(endpoint, call), Aborted); // and stays so
      },
      [](Transport &transport) { transport.abort(); });
  std::vector<std::string> heard = cluster->heard();
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(heard[rank], "woken");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST_P(Conformance, TimeoutNamesTheMissing) {
  cluster->run(
      3, 0.5,
      [&](int rank, Endpoint &endpoint, Counters &) {
        if (rank == 1)
          return; // never comes
        float value = 0;
        CollectiveCall call = makeCall(CollectiveKind::AllReduce, 3, rank);
        call.parts = {makePart(&value, &value, 1)};
        try {
          once(endpoint, call);
        } catch (const RuntimeError &error) {
          EXPECT_EQ(error.status, CLEAVE_TIMEOUT);
          EXPECT_EQ(error.rank, 1);
          cluster->tell(rank, error.what());
          throw;
        }
      },
      [](Transport &transport) { transport.abort(); });
  std::string message = cluster->heard()[0] + cluster->heard()[2];
  EXPECT_NE(message.find("all_reduce \"a\" (test)"), std::string::npos)
      << message;
  EXPECT_NE(message.find("missing ranks: 1"), std::string::npos) << message;
}

// The ranks of a group call different collectives, as if their programs
// disagreed.
TEST_P(Conformance, DifferentCollectivesDoNotMeet) {
  cluster->run(
      2, 20,
      [&](int rank, Endpoint &endpoint, Counters &) {
        std::vector<float> src(8), dst(8);
        CollectiveCall call = makeCall(rank ? CollectiveKind::AllGather
                                            : CollectiveKind::ReduceScatter,
                                       2, rank);
        call.parts = {makePart(src.data(), dst.data(), 4)};
        try {
          once(endpoint, call);
          ADD_FAILURE() << "they met";
        } catch (const RuntimeError &error) {
          EXPECT_EQ(error.status, CLEAVE_BAD_PROGRAM);
          cluster->tell(rank, error.what());
          throw;
        } catch (const Aborted &) {
        }
      },
      [](Transport &transport) { transport.abort(); });
  std::string message = cluster->heard()[0] + cluster->heard()[1];
  for (const char *part :
       {"different collectives", "all_gather", "reduce_scatter", "(test)"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}
} // namespace
