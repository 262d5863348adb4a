// One tile of a bf16 product on Hopper's tensor cores, summed in f32. Each of
// two warpgroups computes 64 rows and 256 columns. Operands are loaded into
// four stages, that is, buffers in shared memory: two stages are being loaded
// while one or two are being read.
#ifndef CLEAVE_RUNTIME_CUDA_KERNELS_WARPGROUP_PRODUCT_H
#define CLEAVE_RUNTIME_CUDA_KERNELS_WARPGROUP_PRODUCT_H

#include "warpgroup.h"

namespace cleave::cuda::device {

/// An operand of a product, with `tileSize` rows or columns in a tile. `inner`
/// is its size along the dimension that is summed, `outer` its size along the
/// other dimension. place(o, i) is the offset of the element with index o along
/// the outer and i along the inner dimension. In memory, every 8 elements along
/// the major dimension are contiguous and begin at a multiple of 16 bytes, and
/// its size is a multiple of 8. The major dimension is the inner one (K-major)
/// or, if `linesAcross`, the outer one (MN-major), also in shared memory
/// (warpgroup.h).
template <bool linesAcross, int tileSize, class Place> struct StagedSide {
  const uint16_t *from;
  int64_t outer, inner; // sizes
  Place place;

  static constexpr bool isAcross = linesAcross;
  static constexpr int bytes = 2 * tileSize * stageDepth;
  static constexpr int perThread = bytes / 16 / productThreads;
  /// If `linesAcross`, a tile in shared memory consists of blocks of 64 rows or
  /// columns of the result. This is the size of a block in bytes.
  static constexpr int partBytes = lineBytes * stageDepth;
  static_assert(stageDepth == lineNumbers && tileSize % lineNumbers == 0);

  CLEAVE_DEVICE void load(unsigned char *tile, int64_t outer0,
                          int64_t inner0) const {
    constexpr int perLine = (isAcross ? tileSize : stageDepth) / 8;
#pragma unroll
    for (int i = 0; i < perThread; ++i) {
      int unit = int(threadIdx.x) + i * productThreads;
      int slow = unit / perLine, fast = unit % perLine;
      int64_t o = outer0 + (isAcross ? 8 * fast : slow);
      int64_t k = inner0 + (isAcross ? slow : 8 * fast);
      bool isThere = o < outer && k < inner;
      // Elements beyond the operand's end become zeros. copyUnit() needs a
      // valid address even for them, so it gets the address of the tile's first
      // element, which always exists. This avoids a branch.
      copyUnit(tile + fast / 8 * partBytes + slow * lineBytes +
                   (fast % 8 ^ slow % 8) * 16,
               from + place(isThere ? o : outer0, isThere ? k : inner0),
               isThere);
    }
  }
  /// Returns the matrix descriptor of the part that begins at element (outer0,
  /// inner0) of the tile at shared address `tile`. `outer0` is a multiple of
  /// 64.
  CLEAVE_DEVICE static uint64_t operand(uint32_t tile, int outer0, int inner0) {
    if constexpr (isAcross)
      return operandOf(tile + outer0 / lineNumbers * partBytes +
                           inner0 * lineBytes,
                       partBytes, pieceBytes);
    else
      return operandOf(tile + outer0 * lineBytes + inner0 * 2, 16, pieceBytes);
  }
};

template <bool linesAcross, int tileSize, class Place>
CLEAVE_DEVICE StagedSide<linesAcross, tileSize, Place>
stagedSide(const void *from, int64_t outer, int64_t inner, Place place) {
  return {static_cast<const uint16_t *>(from), outer, inner, place};
}

/// Returns the dynamic shared memory of the block, from the first multiple of
/// 1024 bytes, at which swizzled tiles must begin. First come the stages, the
/// buffers into which operands are loaded ahead of their use, then other data
/// of the kernel.
CLEAVE_DEVICE unsigned char *stagedMemory() {
  unsigned char *begin = sharedMemory();
  return begin + (0 - sharedAddress(begin)) % pieceBytes;
}

template <class Left, class Right>
CLEAVE_DEVICE void multiplyStages(const Left &left, const Right &right,
                                  int64_t row0, int64_t column0,
                                  WarpgroupSums &sums) {
  static_assert(Left::bytes + Right::bytes == stageBytes);
  unsigned char *memory = stagedMemory();
  int warpgroupRow = int(threadIdx.x) / 128 * warpgroupRows;
  auto load = [&](int64_t step) {
    unsigned char *tile = memory + step % stageCount * stageBytes;
    if (step * stageDepth < left.inner) {
      left.load(tile, row0, step * stageDepth);
      right.load(tile + Left::bytes, column0, step * stageDepth);
    }
    commitCopies();
  };
  if (left.inner == 0) {
#pragma unroll
    for (int i = 0; i < 128; ++i)
      sums[i] = 0;
    return;
  }
  load(0);
  load(1);
  for (int64_t step = 0; step * stageDepth < left.inner; ++step) {
    waitForCopies<1>(); // until only copies for step + 1 are in flight
    __syncthreads();
    uint32_t tile = sharedAddress(memory + step % stageCount * stageBytes);
    beginProducts(sums);
#pragma unroll
    for (int k = 0; k < stageDepth; k += warpgroupDepth)
      multiplyAdd<Left::isAcross, Right::isAcross>(
          sums, Left::operand(tile, warpgroupRow, k),
          Right::operand(tile + Left::bytes, 0, k), step > 0 || k > 0);
    commitProducts();
    // Loads the operands of step + 2 over those of step - 2, whose products
    // have completed on all threads at the barrier above.
    load(step + 2);
    waitForProducts<1>(sums);
  }
  waitForProducts<0>(sums);
}

/// Transposes a 4 x 4 matrix of words, of which each of four adjacent lanes
/// holds a row: afterwards lane t holds word t of lanes 0, 1, 2 and 3.
CLEAVE_DEVICE void transposeQuad(uint32_t (&words)[4]) {
  bool isOdd = ownLane() & 1, isUpper = ownLane() & 2;
  auto exchange = [&](uint32_t &first, uint32_t &second, bool isLater,
                      int with) {
    uint32_t got = __shfl_xor_sync(allLanes, isLater ? first : second, with);
    first = isLater ? got : first;
    second = isLater ? second : got;
  };
#pragma unroll
  for (int i = 0; i < 4; i += 2)
    exchange(words[i], words[i + 1], isOdd, 1);
#pragma unroll
  for (int i = 0; i < 2; ++i)
    exchange(words[i], words[i + 2], isUpper, 2);
}

/// Calls put(row, h) for the two rows (h = 0 and 1) of which the thread holds
/// elements. In each row the thread holds two adjacent columns (i = 0 and 1) of
/// every 8 columns; those of the j-th 8 columns are sums[4 * j + 2 * h + i].
/// All lanes make both calls, even if a row is beyond the result.
template <class Put> CLEAVE_DEVICE void forRows(int64_t row0, Put put) {
#pragma unroll
  for (int h = 0; h < 2; ++h)
    put(row0 + int(threadIdx.x) / 32 * 16 + ownLane() / 4 + 8 * h, h);
}

/// Stores the tile's elements that are within `rows` and `columns`, as f32 if
/// `isWide`, else rounded to bf16. place(row) is the offset of a row, a
/// multiple of 16 bytes. `columns` is a multiple of 8.
template <class Place>
CLEAVE_DEVICE void storeSums(const WarpgroupSums &sums, void *to, bool isWide,
                             int64_t row0, int64_t column0, int64_t rows,
                             int64_t columns, Place place) {
  int t = ownLane() % 4;
  if (isWide) {
    forRows(row0, [&](int64_t row, int h) {
      if (row >= rows)
        return;
      float *begin = static_cast<float *>(to) + place(row);
#pragma unroll
      for (int j = 0; j < warpgroupColumns / 8; ++j) {
        int64_t column = column0 + 8 * j + 2 * t;
        int at = 4 * j + 2 * h;
        if (column < columns)
          *reinterpret_cast<uint2 *>(begin + column) =
              uint2{bitsOf(sums[at]), bitsOf(sums[at + 1])};
      }
    });
    return;
  }
  forRows(row0, [&](int64_t row, int h) {
    bool isThere = row < rows;
    uint16_t *begin = static_cast<uint16_t *>(to) + (isThere ? place(row) : 0);
#pragma unroll
    for (int j = 0; j < warpgroupColumns / 8; j += 4) {
      uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        int at = 4 * (j + i) + 2 * h;
        words[i] = packed(sums[at], sums[at + 1]);
      }
      transposeQuad(words);
      int64_t column = column0 + 8 * (j + t);
      if (isThere && column < columns)
        *reinterpret_cast<uint4 *>(begin + column) =
            uint4{words[0], words[1], words[2], words[3]};
    }
  });
}

} // namespace cleave::cuda::device

#endif // CLEAVE_RUNTIME_CUDA_KERNELS_WARPGROUP_PRODUCT_H
