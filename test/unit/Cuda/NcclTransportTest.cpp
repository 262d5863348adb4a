// The conformance suite on NCCL, on the recorder; and stores.

#include "Conformance.h"
#include "Mirror.h"
#include "Recorded.h"

#include "error.h"
#include "nccl_transport.h"

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

TEST(Store, ServesOverTcp) {
  auto server = cuda::makeTcpStore("127.0.0.1", 0, true, 5);
  int port = cuda::portOf(*server);
  ASSERT_GT(port, 0);
  EXPECT_EQ(server->get("a"), std::nullopt);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([i, port] {
      auto client = cuda::makeTcpStore("127.0.0.1", port, false, 5);
      std::string bytes(128, char(i));
      client->set("key " + std::to_string(i), bytes);
      EXPECT_EQ(client->get("key " + std::to_string(i)), bytes);
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(server->get("key 3"), std::string(128, char(3)));
  server->set("empty", "");
  EXPECT_EQ(server->get("empty"), "");
}

TEST(Store, NamesWhomItCannotReach) {
  try {
    (void)cuda::makeTcpStore("127.0.0.1", 1, false, 0.1);
    FAIL() << "nobody serves there";
  } catch (const Error &error) {
    EXPECT_EQ(error.status, CLEAVE_TIMEOUT);
    EXPECT_NE(std::string(error.what()).find("127.0.0.1:1"), std::string::npos);
  }
}
} // namespace
