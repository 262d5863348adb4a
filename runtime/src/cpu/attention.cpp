// Attention commands on the CPU: checks, workspace, and the split over threads.
// Each output is computed by one task, so results do not depend on the split.

#include "cpu/attention.h"

#include "cleave/philox.h"
#include "cleave/workspace.h"
#include "cpu/micro.h"
#include "cpu/parallel.h"
#include "error.h"

#include <algorithm>

using namespace cleave;
using program::Attention;
using program::DType;
using program::IndexRef;

namespace {
int64_t roundUp(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

template <class S> int64_t scratchElements(const Attention &x) {
  return roundUp(kernelsOf<S>(microKernels()).attentionScratch(x.d, x.dv), 64) +
         (x.backward ? attentionSums<S>(x.qLen, x.g, x.d) : 0);
}

// Returns the number of tasks into which a launch is divided. Only threads that
// get a task need scratch memory.
int64_t taskCount(const Attention &x) {
  return x.backward ? x.b * x.n
                    : x.b * x.n * x.g * blocksOf(x.qLen, attentionQueries);
}

// Returns the number of samples for which the position and segment ranges of
// all blocks are stored: 0 if every query sees every key, 1 if all samples have
// the same positions, segments and masks, else the number of samples.
int64_t blockSamples(const Attention &x) {
  auto all = {&x.queryPositions, &x.keyPositions, &x.querySegments,
              &x.keySegments, &x.keyMask};
  bool hides = x.causal || x.window != 0 || x.querySegments.buffer.present() ||
               x.keyMask.buffer.present();
  if (!hides)
    return 0;
  bool shared = std::all_of(all.begin(), all.end(), [](const IndexRef *index) {
    return !index->buffer.present() || index->strides[0] == 0;
  });
  return shared ? std::min<int64_t>(x.b, 1) : x.b;
}

// Returns the size in bytes of the first part of the workspace, which holds the
// position and segment ranges of all blocks of queries and keys.
int64_t blockBytes(const Attention &x) {
  int64_t blocks =
      blocksOf(x.qLen, attentionQueries) + blocksOf(x.kLen, attentionKeys);
  return roundUp(blockSamples(x) * blocks * int64_t(sizeof(AttentionBlock)),
                 64);
}

int64_t deltaElements(const Attention &x) {
  return x.backward ? roundUp(x.b * x.n * x.g * x.qLen, 64) : 0;
}

template <class S> int64_t workspaceBytes(const Attention &x, int threads) {
  int64_t used = std::min<int64_t>(threads, taskCount(x));
  return blockBytes(x) + (deltaElements(x) + used * scratchElements<S>(x)) *
                             int64_t(sizeof(Compute<S>));
}

template <class S>
AttentionProblem<S> makeProblem(const Attention &x,
                                const AttentionBuffers &at) {
  using T = Compute<S>;
  AttentionProblem<S> p{};
  p.b = x.b, p.qLen = x.qLen, p.kLen = x.kLen;
  p.n = x.n, p.g = x.g, p.d = x.d, p.dv = x.dv;
  auto array = [](const void *data, const program::AttentionRef &ref) {
    typename AttentionProblem<S>::Array out{};
    out.data = static_cast<S *>(const_cast<void *>(data));
    std::copy(ref.strides.begin(), ref.strides.end(), out.strides);
    return out;
  };
  p.q = array(at.q, x.q), p.k = array(at.k, x.k), p.v = array(at.v, x.v);
  p.o = array(at.o, x.o);
  p.lse.data = static_cast<T *>(at.lse);
  std::copy(x.lse.strides.begin(), x.lse.strides.end(), p.lse.strides);
  p.dO = array(at.dO, x.dO), p.dq = array(at.dq, x.dq);
  p.dk = array(at.dk, x.dk), p.dV = array(at.dV, x.dV);
  p.scale = static_cast<T>(x.scale);
  p.softcap = static_cast<T>(x.softcap);
  p.causal = x.causal;
  p.window = x.window;
  auto index = [](const int64_t *data, const IndexRef &ref, int64_t offset) {
    return AttentionIndex{data, {ref.strides[0], ref.strides[1]}, offset};
  };
  p.queryPositions = index(at.queryPositions, x.queryPositions, x.queryOffset);
  p.keyPositions = index(at.keyPositions, x.keyPositions, x.keyOffset);
  p.querySegments = index(at.querySegments, x.querySegments, 0);
  p.keySegments = index(at.keySegments, x.keySegments, 0);
  p.keyMask = at.keyMask;
  std::copy(x.keyMask.strides.begin(), x.keyMask.strides.end(),
            p.keyMaskStrides);
  p.bias = static_cast<const T *>(at.bias);
  std::copy(x.bias.strides.begin(), x.bias.strides.end(), p.biasStrides);
  if (x.dropout > 0) {
    p.dropoutKeys = at.dropoutKeys;
    std::copy(x.dropoutKeys.strides.begin(), x.dropoutKeys.strides.end(),
              p.dropoutStrides);
    p.queryIndices = index(at.queryIndices, x.queryIndices, 0);
    p.keyIndices = index(at.keyIndices, x.keyIndices, 0);
    p.leastKept = philox::leastKept(x.dropout);
    p.keptScale = static_cast<T>(1 / (1 - x.dropout));
  }
  char *workspace = static_cast<char *>(at.workspace);
  p.blockSamples = blockSamples(x);
  if (p.blockSamples) {
    p.queryBlocks = reinterpret_cast<AttentionBlock *>(workspace);
    p.keyBlocks =
        p.queryBlocks + p.blockSamples * blocksOf(x.qLen, attentionQueries);
  }
  p.delta = reinterpret_cast<T *>(workspace + blockBytes(x));
  return p;
}

// Returns the range of positions and of segments of the entries [begin, end) of
// a block. Entries for which `isSeen` is false are ignored.
template <class Seen>
AttentionBlock spanOf(const AttentionIndex &positions,
                      const AttentionIndex &segments, int64_t b, int64_t begin,
                      int64_t end, Seen isSeen) {
  AttentionBlock block{INT64_MAX, INT64_MIN, INT64_MAX, INT64_MIN, 0};
  for (int64_t i = begin; i < end; ++i) {
    if (!isSeen(i))
      continue;
    int64_t position = positions.at(b, i), segment = 0;
    if (segments.data)
      segment = segments.at(b, i);
    block.lowPosition = std::min(block.lowPosition, position);
    block.highPosition = std::max(block.highPosition, position);
    block.lowSegment = std::min(block.lowSegment, segment);
    block.highSegment = std::max(block.highSegment, segment);
    ++block.count;
  }
  return block;
}

template <class S> void findBlocks(const AttentionProblem<S> &p) {
  AttentionBlock *query = p.queryBlocks, *key = p.keyBlocks;
  for (int64_t b = 0; b < p.blockSamples; ++b) {
    for (int64_t i = 0; i < p.qLen; i += attentionQueries)
      *query++ = spanOf(p.queryPositions, p.querySegments, b, i,
                        std::min(i + attentionQueries, p.qLen),
                        [](int64_t) { return true; });
    for (int64_t j = 0; j < p.kLen; j += attentionKeys)
      *key++ = spanOf(p.keyPositions, p.keySegments, b, j,
                      std::min(j + attentionKeys, p.kLen), [&](int64_t at) {
                        return !p.keyMask ||
                               p.keyMask[b * p.keyMaskStrides[0] +
                                         at * p.keyMaskStrides[1]] != 0;
                      });
  }
}

template <class S>
std::function<void()> make(const Attention &x, const AttentionBuffers &buffers,
                           int threads) {
  using T = Compute<S>;
  AttentionProblem<S> p = makeProblem<S>(x, buffers);
  const MicroKernels<S> &kernels = kernelsOf<S>(microKernels());
  T *scratch = p.delta + deltaElements(x);
  int64_t perThread = scratchElements<S>(x), tasks = taskCount(x);
  // The floating-point operations for one score. Forward: q k^T and p v.
  // Backward: q k^T again, dO v^T, p^T dO, dS k and dS^T q.
  int64_t perScore = x.backward ? 6 * x.d + 4 * x.dv : 2 * x.d + 2 * x.dv;
  return [=, &kernels, flops = buffers.flops, backward = x.backward] {
    findBlocks(p);
    parallelFor(tasks, 1, threads, [&](int64_t begin, int64_t end, int thread) {
      T *own = scratch + thread * perThread;
      int64_t blocks = blocksOf(p.qLen, attentionQueries), scores = 0;
      for (int64_t task = begin; task < end; ++task) {
        int64_t block = task % blocks, head = task / blocks;
        scores +=
            backward ? kernels.attentionBackward(p, task / p.n, task % p.n, own)
                     : kernels.attentionForward(p, head / p.g / p.n,
                                                head / p.g % p.n, head % p.g,
                                                block, own);
      }
      if (flops)
        flops->fetch_add(scores * perScore, std::memory_order_relaxed);
    });
  };
}
} // namespace

int64_t cleave::attentionWorkspace(const Attention &x, int threads,
                                   std::string &error) {
  // With this limit, the products of sizes fit into 64 bits.
  constexpr int64_t limit = int64_t(1) << 30;
  for (int64_t size : {x.b, x.qLen, x.kLen, x.n, x.g, x.d, x.dv})
    if (size < 0 || size > limit) {
      error = "attention of size " + std::to_string(size);
      return -1;
    }
  __int128 rows = __int128(x.b) * x.n;
  rows *= x.g;
  if (rows > limit || rows * x.qLen > limit * 1024 || x.d * x.dv > limit) {
    error = "attention is too large";
    return -1;
  }
  if (x.window < 0 || !(x.softcap >= 0)) {
    error = "attention with a negative window or soft cap";
    return -1;
  }
  if (!(x.dropout >= 0 && x.dropout < 1)) {
    error = "attention with dropout " + std::to_string(x.dropout) +
            ", expected at least 0 and less than 1";
    return -1;
  }
  if (x.d == 0 || x.dv == 0 || x.g == 0) {
    error = "attention with an empty head";
    return -1;
  }
  switch (x.dtype) {
  case DType::F32:
    return workspaceBytes<float>(x, threads);
  case DType::F64:
    return workspaceBytes<double>(x, threads);
  case DType::BF16:
    return workspaceBytes<Bf16>(x, threads);
  default:
    error = std::string("attention in ") + nameOf(x.dtype) +
            " is not supported; use f32, f64 or bf16";
    return -1;
  }
}

std::function<void()> cleave::makeAttention(const Attention &attention,
                                            const AttentionBuffers &buffers,
                                            int threads) {
  std::string error;
  if (attentionWorkspace(attention, threads, error) < 0)
    fail(CLEAVE_UNSUPPORTED, error);
  if (attention.dtype == DType::BF16)
    return make<Bf16>(attention, buffers, threads);
  return attention.dtype == DType::F32
             ? make<float>(attention, buffers, threads)
             : make<double>(attention, buffers, threads);
}
