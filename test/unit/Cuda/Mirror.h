// An endpoint for the conformance suite, which only knows host memory: it
// copies the operands of a collective to a device before the collective starts,
// and copies the results back after it has finished.
#ifndef CLEAVE_UNITTEST_CUDA_MIRROR_H
#define CLEAVE_UNITTEST_CUDA_MIRROR_H

#include "cuda/backend.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace cleave::test {

class MirrorEndpoint : public Endpoint {
public:
  MirrorEndpoint(std::unique_ptr<Endpoint> inner, cuda::RankStream rank)
      : inner(std::move(inner)), rank(rank) {}

  void announce(std::vector<std::vector<int>> groups) override {
    inner->announce(std::move(groups));
  }
  std::unique_ptr<Operation> prepare(CollectiveCall call) override;
  void connect() override { inner->connect(); }
  void progress() override { inner->progress(); }

private:
  // A range of host memory, and its copy on the device.
  struct Range {
    char *begin = nullptr, *end = nullptr;
    cuda::DeviceMemory device;
  };
  class Mirrored;

  std::unique_ptr<Endpoint> inner;
  cuda::RankStream rank;
};

class MirrorEndpoint::Mirrored : public Operation {
public:
  Mirrored(Endpoint &endpoint, CollectiveCall call, cuda::RankStream rank)
      : rank(rank) {
    rank.device->use();
    using enum program::CollectiveKind;
    int64_t size = program::sizeOf(call.dtype);
    auto members = static_cast<int64_t>(call.members.size());
    for (const Part &part : call.parts) {
      int64_t one = part.count * size, all = one * members;
      bool swaps = call.kind == AllToAll || call.kind == AllToAllV;
      bool isSender = call.self == 0;
      if (call.kind != SendRecv || isSender)
        add(part.src, swaps || call.kind == ReduceScatter ? all : one);
      if (call.kind == Exchange)
        add(part.dst, part.dstOuter * part.dstInner * size);
      else if (call.kind != SendRecv || !isSender)
        add(part.dst, swaps || call.kind == AllGather ? all : one);
    }
    if (call.kind == AllToAllV) {
      add(call.sent, 8 * members);
      add(call.received, 8 * members);
    }
    merge();
    for (Range &range : ranges)
      range.device = cuda::DeviceMemory(range.end - range.begin, "a mirror");
    for (Part &part : call.parts) {
      part.src = onDevice(part.src);
      part.dst = onDevice(part.dst);
    }
    call.sent = onDevice(call.sent);
    call.received = onDevice(call.received);
    operation = endpoint.prepare(std::move(call));
  }

  ~Mirrored() override { // what was begun must not outlive its memory
    operation.reset();
    (void)cuda::driver().cuStreamSynchronize(rank.compute);
  }

  void start() override {
    rank.device->use();
    for (const Range &range : ranges)
      cuda::check(cuda::driver().cuMemcpyHtoDAsync(
                      cuda::address(range.device.data()), range.begin,
                      range.end - range.begin, rank.compute),
                  "to the mirror");
    operation->start();
  }

  void finish() override {
    operation->finish();
    for (const Range &range : ranges)
      cuda::check(cuda::driver().cuMemcpyDtoHAsync(
                      range.begin, cuda::address(range.device.data()),
                      range.end - range.begin, rank.compute),
                  "from the mirror");
    cuda::check(cuda::driver().cuStreamSynchronize(rank.compute),
                "from the mirror");
  }

private:
  void add(const void *at, int64_t bytes) {
    if (!at || bytes == 0)
      return;
    Range range;
    range.begin = const_cast<char *>(static_cast<const char *>(at));
    range.end = range.begin + bytes;
    ranges.push_back(std::move(range));
  }
  void merge() {
    std::sort(ranges.begin(), ranges.end(),
              [](const Range &a, const Range &b) { return a.begin < b.begin; });
    std::vector<Range> merged;
    for (Range &range : ranges)
      if (!merged.empty() && range.begin < merged.back().end)
        merged.back().end = std::max(merged.back().end, range.end);
      else
        merged.push_back(std::move(range));
    ranges = std::move(merged);
  }
  template <class T> T *onDevice(T *at) const {
    for (const Range &range : ranges)
      if (auto *byte = reinterpret_cast<const char *>(at);
          byte >= range.begin && byte < range.end)
        return reinterpret_cast<T *>(range.device.data() +
                                     (byte - range.begin));
    return at;
  }

  cuda::RankStream rank;
  std::vector<Range> ranges;
  std::unique_ptr<Operation> operation;
};

inline std::unique_ptr<Operation> MirrorEndpoint::prepare(CollectiveCall call) {
  return std::make_unique<Mirrored>(*inner, std::move(call), rank);
}

} // namespace cleave::test

#endif // CLEAVE_UNITTEST_CUDA_MIRROR_H
