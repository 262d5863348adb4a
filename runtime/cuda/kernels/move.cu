// Strided copies and fills, with accesses as wide as alignment allows, and
// several accesses in flight for each thread.

#include "device_code.h"

using namespace cleave::cuda;
using namespace cleave::cuda::device;

namespace {
constexpr int inFlight = 4;

struct Places {
  int64_t dst, src;
};

/// Computes the source and destination offsets of unit `at`. With a 32-bit
/// `Index`, divisions are replaced by multiplications.
template <class Unit, class Index>
CLEAVE_DEVICE Places placesOf(const CopyArguments &x, Index at) {
  Places out{0, 0};
  for (int i = 0; i + 1 < x.dims; ++i) {
    Index next;
    if constexpr (sizeof(Index) == 4)
      next = divide(at, x.divider[i]);
    else
      next = at / x.size[i];
    int64_t rest = at - next * Index(x.size[i]);
    out.dst += rest * x.dstStride[i];
    out.src += rest * x.srcStride[i];
    at = next;
  }
  out.dst += int64_t(at) * x.dstStride[x.dims - 1];
  out.src += int64_t(at) * x.srcStride[x.dims - 1];
  return out;
}

template <class Unit, class Index>
CLEAVE_DEVICE void copy(const CopyArguments &x) {
  int64_t step = int64_t(gridDim.x) * blockDim.x;
  int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; at < x.units; at += step * inFlight) {
    Unit units[inFlight];
    Places places[inFlight];
#pragma unroll
    for (int i = 0; i < inFlight; ++i) {
      int64_t own = at + i * step;
      if (own >= x.units)
        continue;
      places[i] = placesOf<Unit>(x, Index(own));
      units[i] = *reinterpret_cast<const Unit *>(x.src + places[i].src);
    }
#pragma unroll
    for (int i = 0; i < inFlight; ++i)
      if (at + i * step < x.units)
        *reinterpret_cast<Unit *>(x.dst + places[i].dst) = units[i];
  }
}

/// A copy in which dimension 0 is contiguous at the destination and dimension 1
/// at the source. Tiles of both dimensions are transposed in shared memory, so
/// that reads and writes are contiguous.
template <class Unit> CLEAVE_DEVICE void transpose(const CopyArguments &x) {
  constexpr int tile = transposeTile<sizeof(Unit)>;
  // The padded pitch places rows of the tile in different banks.
  constexpr int pitch = tile + (sizeof(Unit) < 4 ? 4 / int(sizeof(Unit)) : 1);
  constexpr int perThread = tile * tile / 256;
  __shared__ Unit turned[tile * pitch];
  int64_t index = blockIdx.x, tiles = (x.size[0] + tile - 1) / tile;
  int64_t to0 = index % tiles * tile;
  index /= tiles;
  tiles = (x.size[1] + tile - 1) / tile;
  int64_t from0 = index % tiles * tile;
  index /= tiles;
  const char *src = x.src + to0 * x.srcStride[0] + from0 * x.srcStride[1];
  char *dst = x.dst + to0 * x.dstStride[0] + from0 * x.dstStride[1];
  for (int i = 2; i < x.dims; ++i) {
    int64_t rest = index % x.size[i];
    index /= x.size[i];
    src += rest * x.srcStride[i];
    dst += rest * x.dstStride[i];
  }
  int64_t rows = x.size[0] - to0, columns = x.size[1] - from0;
  Unit units[perThread];
#pragma unroll
  for (int i = 0; i < perThread; ++i) {
    int at = int(threadIdx.x) + 256 * i, row = at / tile, column = at % tile;
    if (row < rows && column < columns)
      units[i] = *reinterpret_cast<const Unit *>(src + row * x.srcStride[0] +
                                                 column * sizeof(Unit));
  }
#pragma unroll
  for (int i = 0; i < perThread; ++i) {
    int at = int(threadIdx.x) + 256 * i;
    turned[at / tile * pitch + at % tile] = units[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < perThread; ++i) {
    int at = int(threadIdx.x) + 256 * i, row = at % tile, column = at / tile;
    if (row < rows && column < columns)
      *reinterpret_cast<Unit *>(dst + column * x.dstStride[1] +
                                row * sizeof(Unit)) =
          turned[row * pitch + column];
  }
}
} // namespace

#define CLEAVE_COPY(bytes, type)                                               \
  extern "C" __global__ void __launch_bounds__(256)                            \
      cleave_copy_##bytes(CopyArguments x) {                                   \
    copy<type, uint32_t>(x);                                                   \
  }                                                                            \
  extern "C" __global__ void __launch_bounds__(256)                            \
      cleave_copy_long_##bytes(CopyArguments x) {                              \
    copy<type, int64_t>(x);                                                    \
  }
CLEAVE_COPY(1, uint8_t)
CLEAVE_COPY(2, uint16_t)
CLEAVE_COPY(4, uint32_t)
CLEAVE_COPY(8, uint64_t)
CLEAVE_COPY(16, uint4)

#define CLEAVE_TRANSPOSE(bytes, type)                                          \
  extern "C" __global__ void __launch_bounds__(256)                            \
      cleave_transpose_##bytes(CopyArguments x) {                              \
    transpose<type>(x);                                                        \
  }
CLEAVE_TRANSPOSE(1, uint8_t)
CLEAVE_TRANSPOSE(2, uint16_t)
CLEAVE_TRANSPOSE(4, uint32_t)
CLEAVE_TRANSPOSE(8, uint64_t)

extern "C" __global__ void __launch_bounds__(256) cleave_fill(FillArguments x) {
  int64_t own = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  auto byteAt = [&](int64_t at) {
    return static_cast<char>(x.pattern >> (at % 8 * 8));
  };
  // The units begin `head` bytes after the start of the destination, so they
  // contain the pattern rotated by `head` bytes.
  int turn = static_cast<int>(x.head % 8 * 8);
  uint64_t turned =
      turn ? x.pattern >> turn | x.pattern << (64 - turn) : x.pattern;
  uint32_t low = uint32_t(turned), high = uint32_t(turned >> 32);
  auto *units = reinterpret_cast<uint4 *>(x.dst + x.head);
  int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t at = own; at < x.units; at += step)
    units[at] = uint4{low, high, low, high};
  if (own < x.head)
    x.dst[own] = byteAt(own);
  int64_t end = x.head + 16 * x.units;
  if (own < x.tail)
    x.dst[end + own] = byteAt(end + own);
}

CLEAVE_KERNELS(move, CLEAVE_KERNEL(copy_1), CLEAVE_KERNEL(copy_2),
               CLEAVE_KERNEL(copy_4), CLEAVE_KERNEL(copy_8),
               CLEAVE_KERNEL(copy_16), CLEAVE_KERNEL(copy_long_1),
               CLEAVE_KERNEL(copy_long_2), CLEAVE_KERNEL(copy_long_4),
               CLEAVE_KERNEL(copy_long_8), CLEAVE_KERNEL(copy_long_16),
               CLEAVE_KERNEL(transpose_1), CLEAVE_KERNEL(transpose_2),
               CLEAVE_KERNEL(transpose_4), CLEAVE_KERNEL(transpose_8),
               CLEAVE_KERNEL(fill))
