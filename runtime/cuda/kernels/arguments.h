// Arguments of the kernels, as the host fills them in: plain data, shared by
// host and device. Strides are in bytes unless a comment says otherwise.
#ifndef CLEAVE_RUNTIME_CUDA_KERNELS_ARGUMENTS_H
#define CLEAVE_RUNTIME_CUDA_KERNELS_ARGUMENTS_H

#include <stdint.h>

namespace cleave::cuda {

// Divides by a number that is known before the launch: x / divisor is
// (mulhi(x, multiplier) + x) >> shift for all x below 2^31.
struct Divider {
  uint32_t divisor = 1, multiplier = 1, shift = 0;
};
inline Divider dividerOf(uint32_t divisor) {
  Divider out;
  out.divisor = divisor;
  while ((uint64_t(1) << out.shift) < divisor)
    ++out.shift;
  uint64_t power = uint64_t(1) << out.shift;
  out.multiplier =
      uint32_t((uint64_t(1) << 32) * (power - divisor) / divisor + 1);
  return out;
}

constexpr int copyDims = 8;
// A strided copy of `units` units. The template argument of the kernel is the
// unit type, which has 1 to 16 bytes. Dimensions are listed innermost first.
struct CopyArguments {
  char *dst;
  const char *src;
  int64_t units;
  int32_t dims;
  Divider divider[copyDims];
  int64_t size[copyDims];
  int64_t dstStride[copyDims], srcStride[copyDims];
};

// The number of rows and of columns in a tile of a copy that transposes, if a
// unit of the copy has `unit` bytes.
template <int64_t unit> constexpr int transposeTile = unit < 8 ? 64 : 32;

// Fills memory with a pattern of 8 bytes: first `head` bytes, then `units`
// aligned units of 16 bytes, then `tail` bytes. The byte at `dst` is the lowest
// byte of `pattern`.
struct FillArguments {
  char *dst;
  int64_t head, units, tail;
  uint64_t pattern;
};

constexpr int reduceSources = 256;
// An elementwise reduction over `rows` rows of `count` elements. A row is
// processed as `vectors` vectors, the last of which may be partial.
struct ReduceArguments {
  char *dst;
  const char *srcs[reduceSources];
  int32_t numSrcs, op; // program::ReduceOp
  int64_t rows, vectors, count, dstStride, srcStride;
};

// Arguments of program::SortRows and program::PlanRows. All arrays are i64.
struct SortRowsArguments {
  const int64_t *ids;
  int64_t rows, groups;
  int64_t *order, *placeOf, *sorted;
};
struct PlanRowsArguments {
  const int64_t *ids;
  int64_t rows, rounds, ranks, places, tile;
  int64_t *sources, *placeOf, *sent, *counts;
};
// Arguments of PositionInExpert (cleave/program/rows.h). The slots of a sample
// (pairs of a token and an expert that it chose) are counted by `chunks`
// blocks. `inShared` is 0 if the counts of all experts do not fit into shared
// memory.
struct PositionArguments {
  const int64_t *ids, *positions, *loads, *samples;
  int64_t *result;
  int64_t s, k, e, rows, chunks;
  int32_t perSample, inShared;
};

// The rows and columns of the tile of a matrix product that one block computes.
constexpr int64_t productRows = 64, productColumns = 64;
constexpr int productThreads = 256;
// The same for products on tensor cores.
constexpr int64_t matrixRows = 128, matrixColumns = 128;
// For matrix products on Hopper's tensor cores. Operands pass through
// `stageCount` stages, that is, buffers in shared memory. A block computes a
// tile of stagedRows x stagedColumns; a stage has `stageDepth` elements along
// k. `stagedBytes` is the shared memory for all stages and for the offsets of
// the tile's rows, which follow the stages.
constexpr int stagedRows = 128, stagedColumns = 256;
constexpr int stageDepth = 64, stageCount = 4;
constexpr int stageBytes = 2 * stageDepth * (stagedRows + stagedColumns);
constexpr int stagedBytes = stageCount * stageBytes + 8 * stagedRows +
                            1024; // as stages begin at multiples of 1024

constexpr int batchDims = 8;
// Arguments of a matrix product. Strides are in elements. Batch dimensions are
// listed innermost first.
struct GemmArguments {
  const void *a, *b, *bias;
  void *c, *preActivation;
  int64_t m, n, k;
  int64_t aRow, aCol, bRow, bCol, cRow, cCol;
  double alpha;
  int64_t rowTiles, columnTiles;
  int32_t isBf16, isWide, accumulate, activation; // program::Activation
  int32_t numBatch;
  int64_t batch[batchDims], aBatch[batchDims], bBatch[batchDims],
      cBatch[batchDims];
};

// The tables of a grouped product, whose rows are sorted by the matrix that
// they choose. Matrix m has the sorted rows [rowEnd[m - 1], rowEnd[m]) and
// their tiles [tileEnd[m - 1], tileEnd[m]). Rows that choose no matrix come
// last, as if they chose matrix e, where e is the number of matrices. aAt and
// cAt are the offsets of each row in a and c.
struct GroupTables {
  int64_t *rowEnd, *tileEnd; // [e + 1]
  int64_t *aAt, *cAt;        // [rows]
};
constexpr int rowDims = 8;
// The arguments of sorting the rows of a grouped product. The row dimensions
// are listed innermost first, with strides in elements.
struct GroupRowsArguments {
  GroupTables tables;
  const int64_t *ids;
  int64_t rows, e, tileRows;
  int32_t dims;
  Divider divider[rowDims];
  int64_t size[rowDims], aStride[rowDims], cStride[rowDims], idStride[rowDims];
};
struct GroupedArguments {
  GroupTables tables;
  const void *a, *c, *w; // one of them is the result
  int64_t e, k, n;
  int64_t aCol, cCol, wMatrix, wRow, wCol;
  int64_t columnTiles, rowTiles; // rowTiles of one w, if w is the result
  int32_t isBf16, isWide;
};

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_KERNELS_ARGUMENTS_H
