// The CPU backend: memory is mapped pages, and a call is complete when it
// returns.

#include "backend.h"

#include "cleave/workspace.h"
#include "cpu/attention.h"
#include "cpu/gemm.h"
#include "cpu/grouped.h"
#include "cpu/parallel.h"
#include "cpu/position_in_expert.h"
#include "loaded_program.h"
#include "memory.h"
#include "positions.h"
#include "span.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>

using namespace cleave;
using namespace cleave::program;

// Compiled kernels read these fields by offset.
static_assert(offsetof(cleave_ctx, axis_index) == 0 &&
              offsetof(cleave_ctx, axis_size) == 8 &&
              offsetof(cleave_ctx, num_axes) == 16 &&
              offsetof(cleave_ctx, rank) == 24 &&
              offsetof(cleave_ctx, num_ranks) == 32 &&
              offsetof(cleave_ctx, index_fault) == 40);

namespace {
class HostStorage : public Storage {
public:
  explicit HostStorage(int64_t bytes) : memory(bytes) {}

  char *data() const override { return memory.data(); }
  int64_t size() const override { return memory.size(); }
  int64_t slack() const override { return memory.slack(); }
  bool isHost() const override { return true; }
  void write(int64_t at, const void *from, int64_t bytes) override {
    std::memcpy(data() + at, from, bytes);
  }
  void read(int64_t at, void *to, int64_t bytes) const override {
    std::memcpy(to, data() + at, bytes);
  }
  void zero(int64_t at, int64_t bytes) override {
    std::memset(data() + at, 0, bytes);
  }
  void poison(int64_t at, int64_t bytes) override {
    Memory::poison(data() + at, bytes);
  }
  int64_t touched(int64_t at, int64_t bytes) const override {
    return Memory::touched(data() + at, bytes);
  }
  void guard() override { memory.guard(); }
  bool guardIntact() const override { return memory.guardIntact(); }

private:
  Memory memory;
};

class CpuBackend : public Backend {
public:
  CpuBackend(cleave_program &program, int rank, int threads,
             std::atomic<int64_t> &attentionFlops)
      : program(program), threads(threads), attentionFlops(attentionFlops),
        axisIndex(axisIndices(program.data, rank)) {
    for (const MeshAxis &axis : program.data.mesh)
      axisSize.push_back(axis.size);
    ctx = {axisIndex.data(),
           axisSize.data(),
           static_cast<int64_t>(axisSize.size()),
           rank,
           program.data.numRanks(),
           indexFault};
  }

  void attach(std::function<void()>) override { setThreads(threads); }

  std::unique_ptr<Storage> allocate(int64_t bytes,
                                    const std::string &) override {
    return std::make_unique<HostStorage>(bytes);
  }

  int64_t workspace(const Gemm &gemm, std::string &error) const override {
    return gemmWorkspace(gemm, threads, error);
  }
  int64_t workspace(const Attention &attention,
                    std::string &error) const override {
    return attentionWorkspace(attention, threads, error);
  }
  int64_t workspace(const GroupedGemm &grouped,
                    std::string &error) const override {
    return groupedWorkspace(grouped, threads, error);
  }
  int64_t workspace(const Convolution &, std::string &error) const override {
    error = notHere;
    return -1;
  }

  Run launch(const Launch &launch, std::vector<void *> args) override {
    cleave_kernel kernel = program.kernels[launch.kernel];
    return [this, kernel, args = std::move(args), extent = launch.extent,
            grain = launch.grain] {
      parallelFor(extent, grain, threads, [&](int64_t begin, int64_t end, int) {
        kernel(&ctx, args.data(), begin, end);
      });
      if (indexFault[0])
        failIndex();
    };
  }

  Run gemm(const Gemm &gemm, const GemmBuffers &buffers, int64_t) override {
    return makeGemm(gemm, buffers, threads);
  }
  Run attention(const Attention &attention,
                const AttentionBuffers &buffers) override {
    AttentionBuffers counted = buffers;
    counted.flops = &attentionFlops;
    return makeAttention(attention, counted, threads);
  }
  Run grouped(const GroupedGemm &grouped,
              const GroupedBuffers &buffers) override {
    return makeGrouped(grouped, buffers, threads);
  }
  Run convolution(const Convolution &, const ConvolutionBuffers &) override {
    fail(CLEAVE_UNSUPPORTED, notHere);
  }
  Run planRows(const PlanRows &plan, const PlanRowsBuffers &buffers) override;
  Run sortRows(const SortRows &sort, const SortRowsBuffers &buffers) override;
  Run positionInExpert(const PositionInExpert &order,
                       const PositionInExpertBuffers &buffers) override {
    return [x = order, buffers] { cleave::positionInExpert(x, buffers); };
  }
  Run copy(const CopyBuffers &buffers, int64_t block, std::vector<int64_t> dims,
           std::vector<int64_t> srcStrides,
           std::vector<int64_t> dstStrides) override;
  Run fill(char *dst, int64_t count, int64_t size, uint64_t pattern) override;
  char flag(const char *at) override { return *at; }

private:
  [[noreturn]] void failIndex() {
    int64_t rows = std::exchange(indexFault[0], 0);
    fail(CLEAVE_RANK_FAILED, "index " + std::to_string(indexFault[1]) +
                                 " is beyond the " + std::to_string(rows) +
                                 " rows of its table");
  }

  // In programs for CPUs, convolutions are compiled to matrix products.
  static constexpr const char *notHere =
      "a convolution as one command, which only programs for CUDA devices "
      "have; compile the model for this target";
  cleave_program &program;
  const int threads;
  std::atomic<int64_t> &attentionFlops; // in the session's counters
  std::vector<int64_t> axisIndex, axisSize;
  int64_t indexFault[2] = {0, 0};
  cleave_ctx ctx;
};
} // namespace

Backend::Run CpuBackend::copy(const CopyBuffers &buffers, int64_t block,
                              std::vector<int64_t> dims,
                              std::vector<int64_t> srcStrides,
                              std::vector<int64_t> dstStrides) {
  int64_t rows = std::accumulate(dims.begin(), dims.end(), int64_t(1),
                                 std::multiplies<int64_t>());
  return [=, this, dst = buffers.dst, src = buffers.src] {
    parallelFor(rows, std::max<int64_t>(1, 65536 / std::max<int64_t>(block, 1)),
                threads, [&](int64_t begin, int64_t end, int) {
                  for (int64_t row = begin; row < end; ++row) {
                    int64_t rest = row, from = 0, to = 0;
                    for (size_t i = dims.size(); i-- > 0; rest /= dims[i]) {
                      from += rest % dims[i] * srcStrides[i];
                      to += rest % dims[i] * dstStrides[i];
                    }
                    std::memmove(dst + to, src + from, block);
                  }
                });
  };
}

Backend::Run CpuBackend::fill(char *dst, int64_t count, int64_t size,
                              uint64_t pattern) {
  return [=, this] {
    parallelFor(count, 65536 / size, threads,
                [&](int64_t begin, int64_t end, int) {
                  if (pattern == 0) {
                    std::memset(dst + begin * size, 0, (end - begin) * size);
                    return;
                  }
                  for (int64_t i = begin; i < end; ++i) // little-endian
                    std::memcpy(dst + i * size, &pattern, size);
                });
  };
}

Backend::Run CpuBackend::planRows(const PlanRows &x,
                                  const PlanRowsBuffers &at) {
  return [at, rows = x.rows, rounds = x.rounds, ranks = x.ranks,
          places = x.places, tile = x.tile] {
    // At first, all rows for a rank are counted as if they were sent in round
    // 0. The loop at the end divides these counts among the rounds.
    int64_t all = rounds * ranks * places;
    std::fill_n(at.counts, ranks * rounds, 0);
    std::fill_n(at.sources, all, -1);
    std::fill_n(at.sent, all, -1);
    for (int64_t row = 0; row < rows; ++row) {
      int64_t to = at.ids[row] < 0 ? ranks : at.ids[row] / tile;
      if (to >= ranks) {
        at.placeOf[row] = -1;
        continue;
      }
      int64_t number = at.counts[to * rounds]++;
      int64_t place = (number / places * ranks + to) * places + number % places;
      at.placeOf[row] = place;
      at.sources[place] = row;
      at.sent[place] = at.ids[row] - to * tile;
    }
    for (int64_t rank = 0; rank < ranks; ++rank) {
      int64_t left = at.counts[rank * rounds];
      for (int64_t round = 0; round < rounds; ++round) {
        at.counts[rank * rounds + round] = std::min(left, places);
        left -= at.counts[rank * rounds + round];
      }
    }
  };
}

Backend::Run CpuBackend::sortRows(const SortRows &x,
                                  const SortRowsBuffers &at) {
  return [at, rows = x.rows, groups = x.groups,
          ends = std::vector<int64_t>(x.groups + 1)]() mutable {
    auto chosen = [&](int64_t row) {
      return at.ids[row] >= 0 && at.ids[row] < groups ? at.ids[row] : groups;
    };
    std::fill(ends.begin(), ends.end(), 0);
    for (int64_t row = 0; row < rows; ++row)
      ++ends[chosen(row)];
    int64_t begin = 0;
    for (int64_t &end : ends)
      begin += std::exchange(end, begin);
    // At first `ends` holds the beginning of each group. It advances as the
    // rows of the group are placed, until it is the group's end.
    for (int64_t row = 0; row < rows; ++row) {
      int64_t id = chosen(row), place = ends[id]++;
      at.order[place] = row;
      at.placeOf[row] = place;
      at.sorted[place] = id < groups ? id : -1;
    }
  };
}

std::unique_ptr<Backend>
cleave::makeCpuBackend(cleave_program &program, int rank, int threads,
                       std::atomic<int64_t> &attentionFlops) {
  return std::make_unique<CpuBackend>(program, rank, threads, attentionFlops);
}
