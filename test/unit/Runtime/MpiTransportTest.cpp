// Runs the conformance suite on the `mpi` transport, on which every rank is a
// process. Run it with mpirun -n 4 cleave-unit-transport-mpi.

#include "Conformance.h"

#include "error.h"
#include "world.h"

#include <cstdio>

using namespace cleave;
using namespace cleave::test;

namespace {
constexpr int processes = 4;

// Gathers a string of each process in all processes; also a barrier.
std::vector<std::string> share(const std::string &own) {
  World &world = World::get();
  Packet packet;
  packet.add(own);
  for (int rank = 0; rank < world.size(); ++rank)
    if (rank != world.rank())
      world.send(rank, World::Data, packet);
  std::vector<std::string> all(world.size());
  for (int rank = 0; rank < world.size(); ++rank)
    all[rank] = rank == world.rank()
                    ? own
                    : world.receive(rank, World::Data).takeText();
  return all;
}

class MpiCluster : public Cluster {
public:
  explicit MpiCluster(int64_t longestMessage)
      : longestMessage(longestMessage) {}

  void run(int ranks, double timeout, const Body &body,
           const std::function<void(Transport &)> &onFailure) override {
    World &world = World::get();
    told.assign(processes, "");
    Counters counters(ranks, {"a", "b"});
    TransportOptions options{ranks, timeout, false};
    options.longestMessage = longestMessage;
    auto transport = makeMpiTransport(options, counters, world);
    if (world.rank() < ranks) {
      auto endpoint = transport->connect(world.rank());
      try {
        body(world.rank(), *endpoint, counters);
      } catch (...) {
        onFailure(*transport);
      }
    }
    told = share(told[world.rank()]);
  }

private:
  int64_t longestMessage;
};

INSTANTIATE_TEST_SUITE_P(
    Mpi, Conformance,
    testing::Values<MakeCluster>(
        [] {
          return std::unique_ptr<Cluster>(new MpiCluster(Wire::longestMessage));
        },
        // Sends each message in many pieces.
        [] { return std::unique_ptr<Cluster>(new MpiCluster(1000)); }));

// In all processes except the first one, prints only failures.
class FailurePrinter : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult &result) override {
    if (result.failed())
      std::fprintf(stderr, "rank %d: %s:%d: %s\n", World::get().rank(),
                   result.file_name(), result.line_number(), result.message());
  }
};
} // namespace

int main(int argc, char **argv) {
  testing::InitGoogleTest(&argc, argv);
  try {
    World &world = World::get();
    if (world.size() != processes) {
      std::fprintf(stderr, "expected %d processes, found %d\n", processes,
                   world.size());
      return 2;
    }
    if (world.rank() != 0) {
      testing::TestEventListeners &listeners =
          testing::UnitTest::GetInstance()->listeners();
      delete listeners.Release(listeners.default_result_printer());
      listeners.Append(new FailurePrinter);
    }
    int failed = RUN_ALL_TESTS();
    for (const std::string &other : share(failed ? "failed" : ""))
      failed |= !other.empty();
    world.wire().close();
    return failed;
  } catch (const RuntimeError &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}
