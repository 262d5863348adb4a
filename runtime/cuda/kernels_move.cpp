// Launches the runtime's kernels for copies, fills and reductions.

#include "kernels.h"

#include "error.h"
#include "kernels/arguments.h"

#include <algorithm>

using namespace cleave;
using namespace cleave::cuda;
using program::DType;

namespace {
constexpr int threads = 256;

// Returns the number of thread blocks for `units` units of work: at most 32 per
// multiprocessor. Each thread loops over several units if necessary.
int64_t blocksFor(Kernels &kernels, int64_t units, int64_t perThread) {
  int64_t most = int64_t(kernels.device.processors()) * 32;
  int64_t perBlock = threads * perThread;
  return std::min((units + perBlock - 1) / perBlock, most);
}

struct Dim {
  int64_t size, dst, src;
};

// Returns the dimensions of a copy, outermost first, with strides in bytes.
// Adjacent dimensions are merged if possible.
std::vector<Dim> mergedDims(const StridedCopy &copy) {
  std::vector<Dim> dims;
  for (size_t i = 0; i < copy.dims.size(); ++i)
    if (copy.dims[i] != 1)
      dims.push_back({copy.dims[i], copy.dstStrides[i], copy.srcStrides[i]});
  // Sorts by the strides of the destination, so that the last dimension is
  // contiguous there.
  std::stable_sort(dims.begin(), dims.end(),
                   [](const Dim &a, const Dim &b) { return a.dst > b.dst; });
  dims.push_back({copy.size, 1, 1});
  std::vector<Dim> merged;
  for (const Dim &dim : dims) {
    if (!merged.empty() && merged.back().dst == dim.size * dim.dst &&
        merged.back().src == dim.size * dim.src)
      merged.back() = {merged.back().size * dim.size, dim.dst, dim.src};
    else
      merged.push_back(dim);
  }
  return merged;
}

const char *copyKernel(int64_t width, bool isLong) {
  switch (width) {
  case 1:
    return isLong ? "cleave_copy_long_1" : "cleave_copy_1";
  case 2:
    return isLong ? "cleave_copy_long_2" : "cleave_copy_2";
  case 4:
    return isLong ? "cleave_copy_long_4" : "cleave_copy_4";
  case 8:
    return isLong ? "cleave_copy_long_8" : "cleave_copy_8";
  default:
    return isLong ? "cleave_copy_long_16" : "cleave_copy_16";
  }
}

const char *transposeKernel(int64_t width) {
  return width == 1   ? "cleave_transpose_1"
         : width == 2 ? "cleave_transpose_2"
         : width == 4 ? "cleave_transpose_4"
                      : "cleave_transpose_8";
}

// Chooses between a plain copy and one that transposes tiles in shared memory.
// The last dimension is contiguous in the destination. If another dimension is
// contiguous in the source and both are long enough for tiles, returns that
// dimension. Otherwise returns the last dimension: the copy is plain.
size_t turnedDim(const std::vector<Dim> &dims, int64_t width) {
  constexpr int64_t least = 8; // least size of both dimensions
  size_t last = dims.size() - 1;
  if (width > 8 || dims[last].dst != width || dims[last].src == width ||
      dims[last].size < least)
    return last;
  for (size_t i = 0; i < last; ++i)
    if (dims[i].src == width && dims[i].size >= least)
      return i;
  return last;
}

// Returns the largest power of two, up to 16, that divides all numbers whose
// bitwise OR is `bits`.
int64_t widthOf(int64_t bits) {
  bits |= 16;
  return bits & -bits;
}
} // namespace

Enqueue cuda::makeCopy(Kernels &kernels, const StridedCopy &copy) {
  if (copy.size < 1 || copy.dstStrides.size() != copy.dims.size() ||
      copy.srcStrides.size() != copy.dims.size())
    fail(CLEAVE_BAD_PROGRAM,
         "a copy of elements of " + std::to_string(copy.size) + " bytes over " +
             std::to_string(copy.dims.size()) + " dimensions with " +
             std::to_string(copy.dstStrides.size()) + " and " +
             std::to_string(copy.srcStrides.size()) + " strides");
  std::vector<Dim> dims = mergedDims(copy);
  if (dims.size() > size_t(copyDims))
    fail(CLEAVE_UNSUPPORTED, "a copy over " + std::to_string(dims.size()) +
                                 " dimensions; a device has at most " +
                                 std::to_string(copyDims));
  // The innermost dimension is contiguous, so its bytes are moved in units as
  // wide as the alignment allows.
  int64_t bits = dims.back().size | int64_t(address(copy.dst)) |
                 int64_t(address(copy.src));
  for (size_t i = 0; i + 1 < dims.size(); ++i)
    bits |= dims[i].dst | dims[i].src;
  int64_t width = widthOf(bits);
  dims.back() = {dims.back().size / width, width, width};
  if (dims.back().size == 1 && dims.size() > 1)
    dims.pop_back();

  size_t turned = turnedDim(dims, width);
  bool isTransposed = turned + 1 < dims.size();
  if (isTransposed) // becomes the next-to-last dimension
    std::rotate(dims.begin() + turned, dims.begin() + turned + 1,
                dims.end() - 1);

  CopyArguments args{};
  args.dst = copy.dst, args.src = copy.src;
  args.units = 1;
  args.dims = static_cast<int32_t>(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    const Dim &dim = dims[dims.size() - 1 - i];
    args.units *= dim.size;
    args.size[i] = dim.size;
    args.dstStride[i] = dim.dst, args.srcStride[i] = dim.src;
  }
  if (isTransposed) {
    int64_t tile = width < 8 ? transposeTile<4> : transposeTile<8>, blocks = 1;
    for (size_t i = 0; i < dims.size(); ++i)
      blocks *= i < 2 ? (args.size[i] + tile - 1) / tile : args.size[i];
    if (blocks <= INT32_MAX)
      return [&kernels, args, blocks,
              name = transposeKernel(width)](CUstream stream) {
        kernels.launch(name, blocks, threads, 0, stream, args);
      };
  }
  bool isLong = args.units > INT32_MAX;
  if (!isLong && args.units > 0)
    for (size_t i = 0; i < dims.size(); ++i)
      args.divider[i] = dividerOf(static_cast<uint32_t>(args.size[i]));
  return [&kernels, args, name = copyKernel(width, isLong)](CUstream stream) {
    kernels.launch(name, blocksFor(kernels, args.units, 4), threads, 0, stream,
                   args);
  };
}

Enqueue cuda::makeFill(Kernels &kernels, char *dst, int64_t count, int size,
                       uint64_t pattern) {
  if (size != 1 && size != 2 && size != 4 && size != 8)
    fail(CLEAVE_BAD_PROGRAM,
         "a fill of elements of " + std::to_string(size) + " bytes");
  if (size < 8)
    pattern &= (uint64_t(1) << 8 * size) - 1;
  for (int bytes = size; bytes < 8; bytes *= 2)
    pattern |= pattern << 8 * bytes;
  FillArguments args{};
  int64_t bytes = count * size;
  args.dst = dst;
  args.head = std::min<int64_t>(-int64_t(address(dst)) & 15, bytes);
  args.units = (bytes - args.head) / 16;
  args.tail = bytes - args.head - 16 * args.units;
  args.pattern = pattern;
  int64_t blocks =
      bytes ? std::max<int64_t>(blocksFor(kernels, args.units, 4), 1) : 0;
  return [&kernels, args, blocks](CUstream stream) {
    kernels.launch("cleave_fill", blocks, threads, 0, stream, args);
  };
}

void cuda::reduce(Kernels &kernels, const Reduction &x, CUstream stream) {
  if (x.srcs.empty() || x.srcs.size() > size_t(reduceSources))
    fail(CLEAVE_UNSUPPORTED, "a reduction of " + std::to_string(x.srcs.size()) +
                                 " buffers; a device takes 1 to " +
                                 std::to_string(reduceSources));
  int64_t size = program::sizeOf(x.dtype);
  ReduceArguments args{};
  args.dst = x.dst;
  args.numSrcs = static_cast<int32_t>(x.srcs.size());
  args.op = static_cast<int32_t>(x.op);
  args.rows = x.rows, args.count = x.count;
  args.dstStride = x.dstStride, args.srcStride = x.srcStride;
  int64_t bits = int64_t(address(x.dst));
  for (size_t i = 0; i < x.srcs.size(); ++i) {
    args.srcs[i] = x.srcs[i];
    bits |= int64_t(address(x.srcs[i]));
  }
  int64_t row = x.count * size;
  if (x.rows > 1 && x.dstStride == row && x.srcStride == row) {
    args.count *= args.rows;
    args.rows = 1;
  }
  if (args.rows > 1)
    bits |= args.dstStride | args.srcStride;
  bool isAligned = widthOf(bits) == 16;
  int64_t width = isAligned ? 16 / size : 1;
  args.vectors = (args.count + width - 1) / width;
  constexpr const char *aligned[] = {"cleave_reduce_f32",  "cleave_reduce_f64",
                                     "cleave_reduce_bf16", "cleave_reduce_i64",
                                     "cleave_reduce_i32",  "cleave_reduce_i8",
                                     "cleave_reduce_u8"};
  constexpr const char *loose[] = {
      "cleave_reduce_loose_f32",  "cleave_reduce_loose_f64",
      "cleave_reduce_loose_bf16", "cleave_reduce_loose_i64",
      "cleave_reduce_loose_i32",  "cleave_reduce_loose_i8",
      "cleave_reduce_loose_u8"};
  auto type = static_cast<size_t>(x.dtype);
  kernels.launch((isAligned ? aligned : loose)[type],
                 blocksFor(kernels, args.rows * args.vectors, 1), threads, 0,
                 stream, args);
}
