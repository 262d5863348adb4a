// Transfers from one rank to another, on every transport: their order, several
// transfers in flight, both directions, collectives in between, and errors.

#include "Conformance.h"

#include "error.h"

#include <chrono>
#include <deque>
#include <random>
#include <thread>

using namespace cleave;
using namespace cleave::program;
using namespace cleave::test;

namespace {
// Returns the call that `rank`, which is `from` or `to`, makes for a transfer
// between the two.
CollectiveCall transfer(int from, int to, int rank, float *at, int64_t count) {
  CollectiveCall call;
  call.kind = CollectiveKind::SendRecv;
  call.members = {from, to};
  call.self = rank == from ? 0 : 1;
  call.name = "\"pipeline\" (" + std::to_string(from) + " to " +
              std::to_string(to) + ")";
  Part part;
  (rank == from ? part.src : part.dst) = reinterpret_cast<char *>(at);
  part.count = count;
  call.parts = {part};
  return call;
}

std::vector<float> message(int number, int64_t count) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i)
    values[i] = float(1000 * number) + float(i % 1000);
  return values;
}

// The k-th send that starts matches the k-th receive that starts, whichever is
// finished first.
TEST_P(Conformance, MessagesMeetInTheOrderOfTheirStarts) {
  constexpr int messages = 8;
  for (int64_t count : {0, 1, 1000, 100000})
    run(2, [&](int rank, Endpoint &endpoint, Counters &) {
      std::vector<std::vector<float>> data(messages);
      std::vector<std::unique_ptr<Operation>> operations;
      for (std::vector<float> &values : data) {
        values.resize(count);
        operations.push_back(
            endpoint.prepare(transfer(0, 1, rank, values.data(), count)));
      }
      for (int round = 0; round < 5; ++round) {
        for (int i = 0; i < messages; ++i) {
          std::vector<float> values(count, NAN);
          if (rank == 0)
            values = message(10 * round + i, count);
          std::copy(values.begin(), values.end(), data[i].begin());
        }
        for (auto &operation : operations)
          operation->start();
        for (int i = messages; i-- > 0;)
          operations[i]->finish();
        for (int i = 0; rank == 1 && i < messages; ++i)
          ASSERT_EQ(data[i], message(10 * round + i, count));
      }
    });
}

// Every rank sends to both neighbours and waits for these sends before its
// receives. A send must complete as soon as the receiver has started its
// receive.
TEST_P(Conformance, BothDirectionsAtOnce) {
  constexpr int ranks = 4;
  constexpr int64_t count = 300000; // too many to be sent eagerly
  run(ranks, [&](int rank, Endpoint &endpoint, Counters &) {
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    std::vector<float> own, fromLeft(count), fromRight(count);
    own = message(rank, count);
    auto toRight =
        endpoint.prepare(transfer(rank, right, rank, own.data(), count));
    auto toLeft =
        endpoint.prepare(transfer(rank, left, rank, own.data(), count));
    auto ofRight =
        endpoint.prepare(transfer(right, rank, rank, fromRight.data(), count));
    auto ofLeft =
        endpoint.prepare(transfer(left, rank, rank, fromLeft.data(), count));
    for (int round = 0; round < 5; ++round) {
      std::fill(fromLeft.begin(), fromLeft.end(), NAN);
      std::fill(fromRight.begin(), fromRight.end(), NAN);
      std::vector<Operation *> all = {toRight.get(), toLeft.get(),
                                      ofRight.get(), ofLeft.get()};
      if (rank % 2) // no order between channels
        std::reverse(all.begin(), all.end());
      for (Operation *operation : all)
        operation->start();
      toLeft->finish();
      toRight->finish();
      ofLeft->finish();
      ofRight->finish();
      ASSERT_EQ(fromLeft, message(left, count));
      ASSERT_EQ(fromRight, message(right, count));
    }
  });
}

// A message of several parts that are not adjacent in memory. Collectives over
// the same ranks may run while the message is in flight, in whatever order they
// were prepared.
TEST_P(Conformance, CollectivesBetweenStartAndFinish) {
  run(3, [&](int rank, Endpoint &endpoint, Counters &counters) {
    std::vector<std::vector<int>> groups = {{0, 1, 2}};
    if (rank != 2)
      groups.insert(groups.begin() + rank, {0, 1}); // in different orders
    endpoint.announce(groups);
    std::vector<float> buffer(20, NAN), sum(5), all(5);
    if (rank == 0)
      buffer = message(3, 20);
    CollectiveCall send = transfer(0, 1, rank, buffer.data(), 7);
    Part second = send.parts[0];
    (rank == 0 ? second.src : second.dst) =
        reinterpret_cast<char *>(buffer.data() + 10);
    send.parts.push_back(second);
    send.purpose = 1;
    auto reduction = [&](std::vector<int> members, float *at) {
      CollectiveCall call = makeCall(CollectiveKind::AllReduce, 0, rank);
      call.members = members;
      call.parts = {makePart(at, at, 5)};
      return endpoint.prepare(call);
    };
    std::unique_ptr<Operation> sending, pair, everyone;
    auto prepareEveryone = [&] { everyone = reduction({0, 1, 2}, all.data()); };
    if (rank == 1)
      prepareEveryone();
    if (rank != 2) {
      sending = endpoint.prepare(send);
      pair = reduction({0, 1}, sum.data());
    }
    if (rank != 1)
      prepareEveryone();
    for (int round = 0; round < 20; ++round) {
      sum.assign(5, float(rank + 1));
      all.assign(5, float(rank + round));
      if (rank != 2) {
        sending->start();
        // Two collectives in flight at the same time, started in the same order
        // by all members.
        pair->start();
        everyone->start();
        pair->finish();
        everyone->finish();
        endpoint.progress();
        sending->finish();
        ASSERT_EQ(sum, std::vector<float>(5, 3));
      } else {
        everyone->start();
        everyone->finish();
      }
      ASSERT_EQ(all, std::vector<float>(5, float(3 + 3 * round)));
    }
    if (rank == 1)
      for (int i = 0; i < 20; ++i) {
        if (i % 10 < 7)
          EXPECT_EQ(buffer[i], message(3, 20)[i]);
        else
          EXPECT_TRUE(std::isnan(buffer[i])) << i;
      }
    if (rank != 2) {
      Counters::Entry &entry = counters.at(rank, 1);
      EXPECT_EQ(entry.calls, 20);
      EXPECT_EQ(entry.sent, rank == 0 ? 20 * 14 * 4 : 0);
      EXPECT_EQ(entry.received, rank == 1 ? 20 * 14 * 4 : 0);
    }
  });
}

// Random transfers and collectives, in an order that all ranks know. Each rank
// has several in flight, with random delays.
TEST_P(Conformance, RandomDelaysNeverHang) {
  constexpr int ranks = 4, steps = 120;
  for (uint32_t seed = 0; seed < 4; ++seed)
    run(ranks, [&](int rank, Endpoint &endpoint, Counters &) {
      std::mt19937 common(seed), own(100 * seed + uint32_t(rank));
      struct UnderWay {
        std::unique_ptr<Operation> operation;
        std::vector<float> data, expected;
      };
      std::deque<UnderWay> waiting;
      auto finishOne = [&] {
        UnderWay first = std::move(waiting.front());
        waiting.pop_front();
        first.operation->finish();
        EXPECT_EQ(first.data, first.expected);
      };
      for (int step = 0; step < steps; ++step) {
        int from = common() % ranks, to = (from + 1 + common() % 3) % ranks;
        int64_t count = common() % 4 ? common() % 50 : 20000;
        bool reduces = common() % 16 == 0;
        if (own() % 4 == 0)
          std::this_thread::sleep_for(std::chrono::microseconds(own() % 800));
        if (reduces) {
          float value = float(rank);
          CollectiveCall call =
              makeCall(CollectiveKind::AllReduce, ranks, rank);
          call.parts = {makePart(&value, &value, 1)};
          once(endpoint, call);
          EXPECT_EQ(value, 6);
        } else if (rank == from || rank == to) {
          UnderWay next;
          next.expected = message(step, count);
          next.data =
              rank == from ? next.expected : std::vector<float>(count, NAN);
          next.operation = endpoint.prepare(
              transfer(from, to, rank, next.data.data(), count));
          next.operation->start();
          waiting.push_back(std::move(next));
        }
        while (waiting.size() > own() % 6)
          finishOne();
      }
      while (!waiting.empty())
        finishOne();
    });
}

TEST_P(Conformance, AbortWakesWhoWaitsForAMessage) {
  auto start = std::chrono::steady_clock::now();
  cluster->run(
      3, 60,
      [&](int rank, Endpoint &endpoint, Counters &) {
        if (rank == 0)
          throw RuntimeError(CLEAVE_RANK_FAILED, "deliberate");
        // Each of the two ranks waits for a message that the other one would
        // send only later.
        float value = 0;
        auto receive = [&] {
          once(endpoint, transfer(3 - rank, rank, rank, &value, 1));
        };
        EXPECT_THROW(receive(), Aborted);
        cluster->tell(rank, "woken");
        EXPECT_THROW(receive(), Aborted);
      },
      [](Transport &transport) { transport.abort(); });
  std::vector<std::string> heard = cluster->heard();
  EXPECT_EQ(heard[1] + heard[2], "wokenwoken");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST_P(Conformance, TimeoutNamesTheSender) {
  cluster->run(
      3, 0.5,
      [&](int rank, Endpoint &endpoint, Counters &) {
        if (rank != 2)
          return; // never comes
        float value = 0;
        try {
          once(endpoint, transfer(1, 2, rank, &value, 1));
          ADD_FAILURE() << "nobody sent";
        } catch (const RuntimeError &error) {
          EXPECT_EQ(error.status, CLEAVE_TIMEOUT);
          EXPECT_EQ(error.rank, 1);
          cluster->tell(rank, error.what());
          throw;
        }
      },
      [](Transport &transport) { transport.abort(); });
  std::string message = cluster->heard()[2];
  EXPECT_EQ(message, "send_recv \"pipeline\" (1 to 2) over ranks 1, 2 timed "
                     "out after 0.5 s: missing ranks: 1");
}

// The message is too large to be sent before the receiver asks for it, so the
// sender waits for the receiver and names it.
TEST_P(Conformance, TimeoutNamesTheReceiver) {
  constexpr int64_t count = 3000000;
  cluster->run(
      2, 0.5,
      [&](int rank, Endpoint &endpoint, Counters &) {
        if (rank == 1) { // too late
          std::this_thread::sleep_for(std::chrono::seconds(1));
          return;
        }
        // The buffer is static, because the transport may read it until the
        // process ends.
        static std::vector<float> values(count);
        try {
          once(endpoint, transfer(0, 1, rank, values.data(), count));
          ADD_FAILURE() << "nobody received";
        } catch (const RuntimeError &error) {
          EXPECT_EQ(error.status, CLEAVE_TIMEOUT);
          EXPECT_EQ(error.rank, 1);
          cluster->tell(rank, error.what());
          throw;
        }
      },
      [](Transport &transport) { transport.abort(); });
  std::string message = cluster->heard()[0];
  EXPECT_NE(message.find("missing ranks: 1"), std::string::npos) << message;
}

TEST_P(Conformance, DifferentMessagesDoNotMeet) {
  cluster->run(
      2, 20,
      [&](int rank, Endpoint &endpoint, Counters &) {
        std::vector<float> values(8);
        CollectiveCall call =
            transfer(0, 1, rank, values.data(), rank == 0 ? 4 : 8);
        call.name = rank == 0 ? "\"pipeline\" (F3)" : "\"pipeline\" (F4)";
        try {
          once(endpoint, call);
          if (rank == 1)
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
  for (const char *part : {"meet in different", "(F3)", "(F4)", "ranks"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}
} // namespace
