// Runs the transport conformance suite on ranks that share devices, on the
// simulated CUDA library.

#include "Conformance.h"
#include "Mirror.h"
#include "Recorded.h"

#include <thread>

using namespace cleave;
using namespace cleave::test;

namespace {
class DeviceCluster : public Cluster {
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
    auto transport = cuda::makeLocalTransport(options, counters, 0, seen);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        MirrorEndpoint endpoint(transport->connect(rank), seen[rank]);
        try {
          seen[rank].device->use();
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

INSTANTIATE_TEST_SUITE_P(Device, Conformance, testing::Values<MakeCluster>([] {
                           return std::unique_ptr<Cluster>(new DeviceCluster);
                         }));
} // namespace
