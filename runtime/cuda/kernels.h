// The runtime's own device kernels (kernels/*.cu): attention, convolutions,
// products in layouts that cuBLASLt lacks, grouped products, and kernels that
// move, fill, sort and reduce data. The same sources are compiled for CPUs
// (kernels/emulation.h), so that tests can run them without a device.
#ifndef CLEAVE_RUNTIME_CUDA_KERNELS_H
#define CLEAVE_RUNTIME_CUDA_KERNELS_H

#include "command_buffers.h"
#include "convolution.h"
#include "device.h"

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace cleave::cuda {

// The modules of the runtime's kernels on a device, one module per source file.
// of() loads them at its first call for the device.
class Kernels {
public:
  static Kernels &of(Device &device);

  CUfunction find(const char *name); // throws if there is none

  // Launches a kernel; arguments are passed by value.
  template <class... Args>
  void launch(const char *name, int64_t blocks, int threads, int64_t shared,
              CUstream stream, Args... args) {
    void *pointers[] = {&args...};
    launchPointers(name, blocks, threads, shared, stream, pointers);
  }

  Device &device;
  // True if kernels with Hopper's warpgroup products may be used;
  // CLEAVE_CUDA_NO_WGMMA disables them.
  bool hasWarpgroups = false;

private:
  explicit Kernels(Device &device);
  void launchPointers(const char *name, int64_t blocks, int threads,
                      int64_t shared, CUstream stream, void **args);
  std::vector<Module> modules;
  std::mutex mutex;
  std::map<std::string, CUfunction> functions;
  std::map<CUfunction, int64_t> sharedLimits; // only raised limits
};

// Enqueues the work of a command on a stream. It may be called repeatedly, and
// while a CUDA graph is captured. The functions make...() throw Error if the
// command is not supported. Buffers are device addresses.
using Enqueue = std::function<void(CUstream)>;

Enqueue makeAttention(Kernels &kernels, const program::Attention &attention,
                      const AttentionBuffers &buffers);
// The convolution needs no workspace. Its sums have the same order on every
// device.
Enqueue makeConvolution(Kernels &kernels,
                        const program::Convolution &convolution,
                        const ConvolutionBuffers &buffers);
Enqueue makeGrouped(Kernels &kernels, const program::GroupedGemm &grouped,
                    const GroupedBuffers &buffers);
// Returns a call that computes a product in any layout. It is used for layouts
// that cuBLASLt cannot read.
Enqueue makePlainGemm(Kernels &kernels, const program::Gemm &gemm,
                      const GemmBuffers &buffers);

struct PlanRowsBuffers {
  const int64_t *ids = nullptr;
  int64_t *sources = nullptr, *placeOf = nullptr, *sent = nullptr,
          *counts = nullptr;
};
Enqueue makePlanRows(Kernels &kernels, const program::PlanRows &plan,
                     const PlanRowsBuffers &buffers);
struct SortRowsBuffers {
  const int64_t *ids = nullptr;
  int64_t *order = nullptr, *placeOf = nullptr, *sorted = nullptr;
};
Enqueue makeSortRows(Kernels &kernels, const program::SortRows &sort,
                     const SortRowsBuffers &buffers);
Enqueue makePositionInExpert(Kernels &kernels,
                             const program::PositionInExpert &order,
                             const PositionInExpertBuffers &buffers);

// dst[i...] = src[i...] over `dims`, with strides in bytes and elements of
// `size` bytes.
struct StridedCopy {
  char *dst = nullptr;
  const char *src = nullptr;
  int64_t size = 1;
  std::vector<int64_t> dims, dstStrides, srcStrides;
};
Enqueue makeCopy(Kernels &kernels, const StridedCopy &copy);
Enqueue makeFill(Kernels &kernels, char *dst, int64_t count, int size,
                 uint64_t pattern);

// Reduces arrays: dst[i] = srcs[0][i] op srcs[1][i] op ..., in this order, like
// reduceInto() of transport.h. The arrays have `rows` rows of `count` elements,
// and their rows have strides in bytes. dst may be one of the sources.
struct Reduction {
  char *dst = nullptr;
  std::vector<const char *> srcs;
  int64_t rows = 1, count = 0, dstStride = 0, srcStride = 0;
  program::DType dtype = program::DType::F32;
  program::ReduceOp op = program::ReduceOp::Sum;
};
void reduce(Kernels &kernels, const Reduction &reduction, CUstream stream);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_KERNELS_H
