// Guarantees of a rank's communication thread, on the `local` transport.

#include "Conformance.h"

#include <atomic>
#include <chrono>
#include <thread>

using namespace cleave;
using namespace cleave::program;
using namespace cleave::test;

namespace {
using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Runs body on two ranks whose endpoints have communication threads; returns
// the exception message of each rank.
std::vector<std::string>
onTwoRanks(TransportOptions options,
           const std::function<void(int, Endpoint &)> &body) {
  options.ranks = 2;
  options.commThread = true;
  Counters counters(2, {"a"});
  auto transport = makeLocalTransport(options, counters);
  std::vector<std::string> thrown(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      auto endpoint = transport->connect(rank);
      try {
        body(rank, *endpoint);
      } catch (const std::exception &error) {
        thrown[rank] = error.what();
        transport->abort();
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  return thrown;
}

CollectiveCall sumOf(float *data, int64_t count, int self, bool onlyStarts,
                     std::vector<int> members = {0, 1}) {
  CollectiveCall call;
  call.self = self;
  call.members = std::move(members);
  call.onlyStarts = onlyStarts;
  call.name = "\"a\" (sum)";
  Part part;
  part.src = part.dst = reinterpret_cast<char *>(data);
  part.count = part.inner = part.dstInner = count;
  call.parts = {part};
  return call;
}

const std::vector<std::string> nothing(2);

// Three concurrent all-reduces on a slow link run one after the other, and each
// of them takes two latencies.
TEST(CommThread, SlowLinksCarryOneMessageAtATime) {
  TransportOptions options;
  options.linkLatency = 0.01;
  auto begin = Clock::now();
  auto thrown = onTwoRanks(options, [&](int rank, Endpoint &endpoint) {
    std::vector<float> values(3, float(rank + 1));
    std::vector<std::unique_ptr<Operation>> sums;
    for (float &value : values)
      sums.push_back(endpoint.prepare(sumOf(&value, 1, rank, true)));
    for (int step = 0; step < 2; ++step) {
      for (auto &sum : sums)
        sum->start();
      for (auto &sum : sums)
        sum->finish();
    }
    for (float value : values)
      EXPECT_EQ(value, 6);
  });
  EXPECT_EQ(thrown, nothing);
  EXPECT_GE(secondsSince(begin), 2 * 3 * 2 * options.linkLatency);
}

// Rank 0 starts an all-reduce and does not wait for it until rank 1 has
// completed it. So the communication thread of rank 0 must do its part.
TEST(CommThread, ComputesWhileItCommunicates) {
  std::atomic<bool> started = false, done = false;
  auto thrown = onTwoRanks({}, [&](int rank, Endpoint &endpoint) {
    float value = float(rank + 1);
    auto sum = endpoint.prepare(sumOf(&value, 1, rank, true));
    if (rank == 1)
      started.wait(false);
    sum->start();
    if (rank == 0) {
      started = true;
      started.notify_all();
      done.wait(false);
    }
    sum->finish();
    if (rank == 1) {
      done = true;
      done.notify_all();
    }
    EXPECT_EQ(value, 3);
  });
  EXPECT_EQ(thrown, nothing);
}

TEST(CommThread, LinksAreAsSlowAsAsked) {
  TransportOptions options;
  options.linkBytesPerSecond = 4e5;
  auto thrown = onTwoRanks(options, [](int rank, Endpoint &endpoint) {
    std::vector<float> values(10000, 1); // receives 20 kB twice: 0.1 s
    auto sum = endpoint.prepare(sumOf(values.data(), 10000, rank, false));
    auto begin = Clock::now();
    sum->start();
    sum->finish();
    EXPECT_GE(secondsSince(begin), 0.1);
    EXPECT_EQ(values[9999], 2);
  });
  EXPECT_EQ(thrown, nothing);
}

// Asynchronous collectives, blocking collectives, and collectives of another
// group. The order of the waits differs from the order of the starts.
TEST(CommThread, KeepsTheOrderOfTheList) {
  auto thrown = onTwoRanks({}, [](int rank, Endpoint &endpoint) {
    constexpr int number = 16;
    std::vector<std::vector<float>> values;
    std::vector<std::unique_ptr<Operation>> operations;
    for (int i = 0; i < number; ++i)
      values.emplace_back(100 + i, float(i * (rank + 1)));
    for (int i = 0; i < number; ++i)
      operations.push_back(endpoint.prepare(
          sumOf(values[i].data(), 100 + i, i % 5 == 3 ? 0 : rank, i % 4 != 2,
                i % 5 == 3 ? std::vector<int>{rank} : std::vector<int>{0, 1})));
    for (int round = 0; round < 50; ++round) {
      for (int i = 0; i < number; ++i) {
        values[i].assign(100 + i, float(i * (rank + 1)));
        operations[i]->start();
        if (i % 4 == 2)
          operations[i]->finish();
      }
      for (int i = number; i-- > 0;)
        if (i % 4 != 2)
          operations[i]->finish();
      for (int i = 0; i < number; ++i)
        EXPECT_EQ(values[i].back(), float(i % 5 == 3 ? i * (rank + 1) : 3 * i));
    }
  });
  EXPECT_EQ(thrown, nothing);
}

TEST(CommThread, AFailureComesOutWhereItIsWaitedFor) {
  TransportOptions options;
  options.timeoutSeconds = 0.2;
  std::atomic<bool> started = false;
  auto thrown = onTwoRanks(options, [&](int rank, Endpoint &endpoint) {
    if (rank == 1)
      return;
    float value = 1, other = 1;
    auto sum = endpoint.prepare(sumOf(&value, 1, rank, true));
    auto next = endpoint.prepare(sumOf(&other, 1, rank, true));
    sum->start();
    next->start();
    started = true;
    sum->finish();
  });
  EXPECT_TRUE(started);
  EXPECT_NE(thrown[0].find("timed out after 0.2 s: missing ranks: 1"),
            std::string::npos)
      << thrown[0];
}

// If a peer is missing, a rank gives up and frees its buffers, so the aborted
// operation must not access them.
TEST(CommThread, AnAbortedOperationTouchesNothingLater) {
  auto thrown = onTwoRanks({}, [&](int rank, Endpoint &endpoint) {
    auto value = std::make_unique<float>(1.0f);
    auto sum = endpoint.prepare(sumOf(value.get(), 1, rank, true));
    if (rank == 1)
      throw std::runtime_error("out of order");
    sum->start();
    sum->finish();
  });
  EXPECT_EQ(thrown[0], "another rank failed");
  EXPECT_EQ(thrown[1], "out of order");
}

TEST(CommThread, RefusesToStartTwice) {
  auto thrown = onTwoRanks({}, [&](int rank, Endpoint &endpoint) {
    float value = 1;
    auto sum = endpoint.prepare(sumOf(&value, 1, 0, true, {rank}));
    EXPECT_THROW(sum->finish(), RuntimeError);
    sum->start();
    EXPECT_THROW(sum->start(), RuntimeError);
    sum->finish();
  });
  EXPECT_EQ(thrown, nothing);
}
} // namespace
