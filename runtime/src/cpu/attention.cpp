// Attention commands: checks, workspace, and the split over threads. A task
// computes its outputs alone, so results do not depend on the split.

#include "cpu/attention.h"

#include "cleave/workspace.h"
#include "cpu/micro.h"
#include "cpu/parallel.h"
#include "error.h"

#include <algorithm>

using namespace cleave;
using program::Attention;
using program::DType;

namespace {
int64_t roundUp(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

template <class T> int64_t scratchElements(const Attention &x) {
  return roundUp(kernelsOf<T>(microKernels()).attentionScratch(x.d, x.dv), 64);
}

// Tasks of a launch; a thread needs scratch only if it gets one.
int64_t taskCount(const Attention &x) {
  return x.backward ? x.b * x.n
                    : x.b * x.n * x.g *
                          ((x.qLen + attentionQueries - 1) / attentionQueries);
}

int64_t deltaElements(const Attention &x) {
  return x.backward ? roundUp(x.b * x.n * x.g * x.qLen, 64) : 0;
}

template <class T> int64_t workspaceElements(const Attention &x, int threads) {
  int64_t used = std::min<int64_t>(threads, taskCount(x));
  return deltaElements(x) + used * scratchElements<T>(x);
}

template <class T>
AttentionProblem<T> makeProblem(const Attention &x,
                                const AttentionBuffers &at) {
  AttentionProblem<T> p{};
  p.b = x.b, p.qLen = x.qLen, p.kLen = x.kLen;
  p.n = x.n, p.g = x.g, p.d = x.d, p.dv = x.dv;
  auto array = [](const void *data, const program::AttentionRef &ref) {
    typename AttentionProblem<T>::Array out{};
    out.data = static_cast<T *>(const_cast<void *>(data));
    std::copy(ref.strides.begin(), ref.strides.end(), out.strides);
    return out;
  };
  p.q = array(at.q, x.q), p.k = array(at.k, x.k), p.v = array(at.v, x.v);
  p.o = array(at.o, x.o), p.lse = array(at.lse, x.lse);
  p.dO = array(at.dO, x.dO), p.dq = array(at.dq, x.dq);
  p.dk = array(at.dk, x.dk), p.dV = array(at.dV, x.dV);
  p.scale = static_cast<T>(x.scale);
  p.causal = x.causal;
  p.queryOffset = x.queryOffset, p.keyOffset = x.keyOffset;
  p.maskKind = static_cast<int>(x.mask);
  p.mask = at.mask;
  std::copy(x.maskRef.strides.begin(), x.maskRef.strides.end(), p.maskStrides);
  p.queryPositions = at.queryPositions, p.keyPositions = at.keyPositions;
  std::copy(x.queryPositionStrides.begin(), x.queryPositionStrides.end(),
            p.queryPositionStrides);
  std::copy(x.keyPositionStrides.begin(), x.keyPositionStrides.end(),
            p.keyPositionStrides);
  p.delta = static_cast<T *>(at.workspace);
  return p;
}

template <class T>
std::function<void()> make(const Attention &x, const AttentionBuffers &buffers,
                           int threads) {
  AttentionProblem<T> p = makeProblem<T>(x, buffers);
  const MicroKernels<T> &kernels = kernelsOf<T>(microKernels());
  T *scratch = static_cast<T *>(buffers.workspace) + deltaElements(x);
  int64_t perThread = scratchElements<T>(x), tasks = taskCount(x);
  if (x.backward)
    return [=, &kernels] {
      parallelFor(tasks, 1, threads,
                  [&](int64_t begin, int64_t end, int thread) {
                    for (int64_t task = begin; task < end; ++task)
                      kernels.attentionBackward(p, task / p.n, task % p.n,
                                                scratch + thread * perThread);
                  });
    };
  return [=, &kernels] {
    parallelFor(tasks, 1, threads, [&](int64_t begin, int64_t end, int thread) {
      int64_t blocks = (p.qLen + attentionQueries - 1) / attentionQueries;
      for (int64_t task = begin; task < end; ++task) {
        int64_t block = task % blocks, head = task / blocks;
        kernels.attentionForward(p, head / p.g / p.n, head / p.g % p.n,
                                 head % p.g, block,
                                 scratch + thread * perThread);
      }
    });
  };
}
} // namespace

int64_t cleave::attentionWorkspace(const Attention &x, int threads,
                                   std::string &error) {
  // Bounds that keep every product of sizes within 64 bits.
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
  if (x.d == 0 || x.dv == 0 || x.g == 0) {
    error = "attention with an empty head";
    return -1;
  }
  switch (x.dtype) {
  case DType::F32:
    return workspaceElements<float>(x, threads) * int64_t(sizeof(float));
  case DType::F64:
    return workspaceElements<double>(x, threads) * int64_t(sizeof(double));
  default:
    error = std::string("attention in ") + nameOf(x.dtype) +
            " is not yet supported; use f32 or f64";
    return -1;
  }
}

std::function<void()> cleave::makeAttention(const Attention &attention,
                                            const AttentionBuffers &buffers,
                                            int threads) {
  std::string error;
  if (attentionWorkspace(attention, threads, error) < 0)
    fail(CLEAVE_UNSUPPORTED, error);
  return attention.dtype == DType::F32
             ? make<float>(attention, buffers, threads)
             : make<double>(attention, buffers, threads);
}
