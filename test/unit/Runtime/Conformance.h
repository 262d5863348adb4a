// The interface through which every transport is tested. Each rank runs a
// function, in a thread or in a process. Tests access ranks only through
// Transport and Counters, and never read a peer's memory; ranks report results
// as strings.
#ifndef CLEAVE_UNITTEST_RUNTIME_CONFORMANCE_H
#define CLEAVE_UNITTEST_RUNTIME_CONFORMANCE_H

#include "Helpers.h"

#include "transport.h"

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace cleave::test {

class Cluster {
public:
  using Body = std::function<void(int rank, Endpoint &, Counters &)>;

  virtual ~Cluster() = default;
  // Runs `body` on the ranks [0, ranks). Calls onFailure on each rank on which
  // `body` throws.
  virtual void run(int ranks, double timeout, const Body &body,
                   const std::function<void(Transport &)> &onFailure) = 0;
  // Returns for each rank the text that it passed to tell() in the last run.
  virtual std::vector<std::string> heard() { return told; }

  void tell(int rank, const std::string &text) {
    std::lock_guard lock(mutex);
    told[rank] += text;
  }

protected:
  std::vector<std::string> told;
  std::mutex mutex;
};

using MakeCluster = std::unique_ptr<Cluster> (*)();

class Conformance : public testing::TestWithParam<MakeCluster> {
protected:
  Conformance() : cluster(GetParam()()) {}

  // Runs body(rank, endpoint, counters) on all ranks. A failure of any rank
  // fails the test.
  void run(int ranks, const Cluster::Body &body) {
    cluster->run(ranks, 30, body, [](Transport &transport) {
      ADD_FAILURE() << "a rank threw";
      transport.abort();
    });
  }

  static CollectiveCall makeCall(program::CollectiveKind kind, int ranks,
                                 int self) {
    CollectiveCall call;
    call.kind = kind;
    call.self = self;
    for (int rank = 0; rank < ranks; ++rank)
      call.members.push_back(rank);
    call.name = "\"a\" (test)";
    return call;
  }

  static Part makePart(float *src, float *dst, int64_t count) {
    Part part;
    part.src = reinterpret_cast<char *>(src);
    part.dst = reinterpret_cast<char *>(dst);
    part.count = count;
    part.inner = part.dstInner = count;
    return part;
  }

  // Starts the call and finishes it, with time for compute operations in
  // between.
  static void once(Endpoint &endpoint, CollectiveCall call) {
    call.onlyStarts = true;
    auto operation = endpoint.prepare(std::move(call));
    operation->start();
    operation->finish();
  }

  std::unique_ptr<Cluster> cluster;
};

} // namespace cleave::test

#endif // CLEAVE_UNITTEST_RUNTIME_CONFORMANCE_H
