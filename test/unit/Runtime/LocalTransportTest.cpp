// Runs the conformance suite on the `local` transport, on which ranks are
// threads.

#include "Conformance.h"

#include <thread>

using namespace cleave;
using namespace cleave::test;

namespace {
class LocalCluster : public Cluster {
public:
  explicit LocalCluster(bool spin, bool commThread = false)
      : spin(spin), commThread(commThread) {}

  void run(int ranks, double timeout, const Body &body,
           const std::function<void(Transport &)> &onFailure) override {
    told.assign(ranks, "");
    Counters counters(ranks, {"a", "b"});
    TransportOptions options{ranks, timeout, spin};
    options.commThread = commThread;
    auto transport = makeLocalTransport(options, counters);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        auto endpoint = transport->connect(rank);
        try {
          body(rank, *endpoint, counters);
        } catch (...) {
          onFailure(*transport);
        }
      });
    for (std::thread &thread : threads)
      thread.join();
  }

private:
  bool spin, commThread;
};

INSTANTIATE_TEST_SUITE_P(
    Local, Conformance,
    testing::Values<MakeCluster>(
        [] { return std::unique_ptr<Cluster>(new LocalCluster(false)); },
        [] { return std::unique_ptr<Cluster>(new LocalCluster(true)); },
        [] {
          return std::unique_ptr<Cluster>(new LocalCluster(false, true));
        }));
} // namespace
