// Runs the transport conformance suite on NCCL, simulated by the CUDA library
// that records calls.

#include "Conformance.h"
#include "Mirror.h"
#include "Recorded.h"

#include "error.h"
#include "nccl_communicator.h"
#include "nccl_transport.h"

#include <atomic>
#include <future>
#include <thread>

using namespace cleave;
using namespace cleave::test;

namespace {
class NcclCluster : public Cluster {
public:
  void run(int ranks, double timeout, const Body &body,
           const std::function<void(Transport &)> &onFailure) override {
    Recorded::prepare();
    told.assign(ranks, "");
    Counters counters(ranks, {"a", "b"});
    TransportOptions options{ranks, timeout};
    std::vector<cuda::Stream> streams;
    std::vector<cuda::RankStream> seen;
    for (int rank = 0; rank < ranks; ++rank) {
      cuda::Device &device = cuda::Device::of(rank);
      device.use();
      streams.push_back(cuda::makeStream());
      seen.push_back({&device, streams.back().get()});
    }
    auto transport = cuda::makeNcclTransport(options, counters, 0, seen,
                                             cuda::makeLocalStore());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        seen[rank].device->use();
        MirrorEndpoint endpoint(transport->connect(rank), seen[rank]);
        try {
          body(rank, endpoint, counters);
        } catch (const std::exception &error) {
          if (std::string_view(error.what()) != "another rank failed")
            std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
          onFailure(*transport);
        }
      });
    for (std::thread &thread : threads)
      thread.join();
    EXPECT_EQ(Recorded::takeErrors(), "");
  }
};

INSTANTIATE_TEST_SUITE_P(Nccl, Conformance, testing::Values<MakeCluster>([] {
                           return std::unique_ptr<Cluster>(new NcclCluster);
                         }));

// While a call waits for a lost member, it holds the communicator. abort() must
// return nevertheless, and the communicator cannot be used after that call.
TEST(NcclCommunicator, IsAbortedAfterACallThatWaits) {
  using namespace std::chrono_literals;
  Recorded::prepare();
  cuda::Device &device = cuda::Device::of(0);
  device.use();
  cuda::Stream stream = cuda::makeStream();
  auto store = cuda::makeLocalStore();
  cuda::NcclCommunicator one("alone", {0}, 0, {&device, stream.get()}, *store,
                             nullptr);
  std::promise<void> begun, given;
  std::thread waiting([&] {
    one.use([&](ncclComm_t) {
      begun.set_value();
      given.get_future().wait();
    });
  });
  begun.get_future().wait();
  auto aborting = std::async(std::launch::async, [&] { one.abort(); });
  EXPECT_EQ(aborting.wait_for(30s), std::future_status::ready);
  given.set_value();
  waiting.join();
  EXPECT_THROW(one.use([](ncclComm_t) {}), Aborted);
}

//--- Ranks that do not see each other ----------------------------------------

// Each rank has a transport of its own, as ranks in separate processes have.
class NcclProcesses : public Recorded {
public:
  // A rank's access to the store that all ranks share.
  class SharedStore : public cuda::Store {
  public:
    explicit SharedStore(cuda::Store &store) : store(store) {}
    void set(const std::string &key, const std::string &value) override {
      store.set(key, value);
    }
    std::optional<std::string> get(const std::string &key) override {
      return store.get(key);
    }

  private:
    cuda::Store &store;
  };

  struct Rank {
    int rank;
    Transport &transport;
    Endpoint &endpoint;
    Counters &counters;
    CUstream compute;
    float *at; // 12 numbers on the device
  };

  static void run(int ranks, double timeout,
                  const std::function<void(Rank)> &body) {
    auto store = cuda::makeLocalStore();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        cuda::Device &device = cuda::Device::of(rank);
        device.use();
        cuda::Stream stream = cuda::makeStream();
        cuda::DeviceMemory memory(48, "numbers");
        Counters counters(ranks, {"a", "b"});
        auto transport = cuda::makeNcclTransport(
            {ranks, timeout}, counters, rank, {{&device, stream.get()}},
            std::make_unique<SharedStore>(*store));
        auto endpoint = transport->connect(rank);
        body({rank, *transport, *endpoint, counters, stream.get(),
              reinterpret_cast<float *>(memory.data())});
        endpoint.reset();
      });
    for (std::thread &thread : threads)
      thread.join();
  }

  // Runs ranks as threads that share one transport.
  static void runThreads(int ranks, double timeout,
                         const std::function<void(Rank)> &body) {
    Counters counters(ranks, {"a", "b"});
    std::vector<cuda::Stream> streams;
    std::vector<cuda::RankStream> seen;
    std::vector<cuda::DeviceMemory> memory;
    for (int rank = 0; rank < ranks; ++rank) {
      cuda::Device &device = cuda::Device::of(rank);
      device.use();
      streams.push_back(cuda::makeStream());
      memory.emplace_back(48, "numbers");
      seen.push_back({&device, streams.back().get()});
    }
    auto transport = cuda::makeNcclTransport({ranks, timeout}, counters, 0,
                                             seen, cuda::makeLocalStore());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        seen[rank].device->use();
        auto endpoint = transport->connect(rank);
        body({rank, *transport, *endpoint, counters, seen[rank].compute,
              reinterpret_cast<float *>(memory[rank].data())});
      });
    for (std::thread &thread : threads)
      thread.join();
  }

  // Waits for the device as a session does.
  static void settle(Rank self) {
    while (cuda::driver().cuStreamQuery(self.compute) == CUDA_ERROR_NOT_READY) {
      self.endpoint.progress();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  static CollectiveCall sum(int ranks, Rank self) {
    CollectiveCall call;
    call.self = self.rank;
    for (int rank = 0; rank < ranks; ++rank)
      call.members.push_back(rank);
    call.name = "\"a\" (test)";
    Part part;
    part.src = part.dst = reinterpret_cast<char *>(self.at);
    part.count = part.inner = 12;
    call.parts = {part};
    return call;
  }
  static void write(Rank self, float value) {
    std::vector<float> numbers(12, value);
    cuda::check(cuda::driver().cuMemcpyHtoDAsync(
                    cuda::address(self.at), numbers.data(), 48, self.compute),
                "writing");
  }
  static std::vector<float> read(Rank self) {
    std::vector<float> numbers(12);
    cuda::check(cuda::driver().cuMemcpyDtoHAsync(
                    numbers.data(), cuda::address(self.at), 48, self.compute),
                "reading");
    return numbers;
  }
};

TEST_F(NcclProcesses, MeetThroughTheStore) {
  run(3, 20, [](Rank self) {
    auto operation = self.endpoint.prepare(sum(3, self));
    for (int round = 0; round < 3; ++round) {
      write(self, float(self.rank + round));
      operation->start();
      operation->finish();
      settle(self);
      EXPECT_EQ(read(self), std::vector<float>(12, float(3 + 3 * round)));
    }
    EXPECT_EQ(self.counters.at(self.rank, 0).received, 3 * 4 * 48 / 3);
    EXPECT_EQ(self.counters.at(self.rank, 0).calls, 3);
  });
}

// All ranks except rank 0 capture the collective once and replay the graph.
// Rank 0 starts it directly, so its transfers meet those of the others' graphs.
void replayed(NcclProcesses::Rank self) {
  auto operation = self.endpoint.prepare(NcclProcesses::sum(2, self));
  EXPECT_TRUE(operation->mayReplay());
  auto once = [&] {
    operation->start();
    operation->finish();
  };
  NcclProcesses::write(self, float(self.rank + 1));
  once();
  NcclProcesses::settle(self);
  EXPECT_EQ(NcclProcesses::read(self), std::vector<float>(12, 3));
  const cuda::DriverApi &api = cuda::driver();
  cuda::check(api.cuStreamBeginCapture(self.compute,
                                       CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
              "capturing");
  once();
  CUgraph graph = nullptr;
  cuda::check(api.cuStreamEndCapture(self.compute, &graph), "capturing");
  CUgraphExec made = nullptr;
  cuda::check(api.cuGraphInstantiateWithFlags(&made, graph, 0), "capturing");
  cuda::check(api.cuGraphDestroy(graph), "capturing");
  cuda::GraphExec exec(made);
  for (int round = 0; round < 3; ++round) {
    cuda::check(api.cuGraphLaunch(exec.get(), self.compute), "replaying");
    if (round > 0) // the first was counted when it was captured
      operation->replayed();
    NcclProcesses::settle(self);
  }
  EXPECT_EQ(NcclProcesses::read(self), std::vector<float>(12, 24));
  EXPECT_EQ(self.counters.at(self.rank, 0).calls, 4);
}

TEST_F(NcclProcesses, GraphsHoldCollectives) { run(2, 20, replayed); }

TEST_F(NcclProcesses, GraphsHoldCollectivesOfThreads) {
  runThreads(2, 20, replayed);
}

// Each rank sends before it receives. NCCL connects two ranks in the call of
// their first message, so these calls could wait for each other. To prevent
// this, the endpoints connect the ranks before the first message.
TEST_F(NcclProcesses, FirstMessagesMayCross) {
  setenv("CLEAVE_RECORDER_CONNECTS", "1", 1);
  runThreads(2, 20, [](Rank self) {
    auto message = [&](int from, float *at) {
      CollectiveCall call;
      call.kind = program::CollectiveKind::SendRecv;
      call.members = {from, 1 - from};
      call.self = from == self.rank ? 0 : 1;
      call.onlyStarts = true;
      call.name = "\"a\" (test)";
      Part part;
      part.src = part.dst = reinterpret_cast<char *>(at);
      part.count = 4;
      call.parts.push_back(part);
      return self.endpoint.prepare(std::move(call));
    };
    write(self, float(self.rank + 1));
    auto send = message(self.rank, self.at);
    auto receive = message(1 - self.rank, self.at + 8);
    self.endpoint.connect();
    send->start();
    self.endpoint.progress(); // it is under way
    receive->start();
    send->finish();
    receive->finish();
    settle(self);
    EXPECT_EQ(read(self)[8], float(2 - self.rank));
  });
  unsetenv("CLEAVE_RECORDER_CONNECTS");
}

// Rank 1 joins the communicator and prepares a sum, so it never makes the first
// message for which rank 0 waits.
TEST_F(NcclProcesses, FirstMessagesMayBeLost) {
  setenv("CLEAVE_RECORDER_CONNECTS", "1", 1);
  std::atomic<bool> isOver{false};
  run(2, 0.5, [&](Rank self) {
    CollectiveCall call = sum(2, self);
    if (self.rank == 0)
      call.kind = program::CollectiveKind::AllToAll;
    auto operation = self.endpoint.prepare(std::move(call));
    try {
      self.endpoint.connect();
      EXPECT_EQ(self.rank, 1);
      while (!isOver)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    } catch (const RuntimeError &error) {
      EXPECT_EQ(self.rank, 0);
      EXPECT_EQ(error.status, CLEAVE_TIMEOUT);
      EXPECT_EQ(std::string(error.what()),
                "connecting ranks 0, 1: NCCL did not bring their first "
                "messages; NCCL_DEBUG=INFO tells what it waits for");
      isOver = true;
    }
  });
  unsetenv("CLEAVE_RECORDER_CONNECTS");
}

TEST_F(NcclProcesses, TimeoutsNameWhoIsLate) {
  std::atomic<bool> isOver{false};
  run(3, 0.5, [&](Rank self) {
    auto operation = self.endpoint.prepare(sum(3, self));
    // All members run the collective once, so that the communicator exists.
    operation->start();
    operation->finish();
    settle(self);
    if (self.rank == 1) { // never comes again
      while (!isOver)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return;
    }
    operation->start();
    operation->finish();
    try {
      settle(self);
      ADD_FAILURE() << "they met";
    } catch (const RuntimeError &error) {
      EXPECT_EQ(error.status, CLEAVE_TIMEOUT);
      EXPECT_EQ(error.rank, 1);
      EXPECT_NE(
          std::string(error.what())
              .find("all_reduce \"a\" (test) over ranks 0, 1, 2 timed out "
                    "after 0.5 s: missing ranks: 1"),
          std::string::npos)
          << error.what();
      self.transport.abort();
    }
    isOver = true;
  });
}

TEST_F(NcclProcesses, WhoNeverCameIsMissing) {
  run(2, 0.5, [](Rank self) {
    if (self.rank == 1)
      return;
    auto operation = self.endpoint.prepare(sum(2, self));
    operation->start();
    try {
      operation->finish();
      ADD_FAILURE() << "they met";
    } catch (const RuntimeError &error) {
      EXPECT_EQ(error.status, CLEAVE_TIMEOUT);
      EXPECT_EQ(error.rank, 1);
    }
  });
}
} // namespace
