// Kernels that are compiled once per instruction set (isa_*.cpp) and chosen
// when the process starts. The interface is plain data and function pointers,
// because isa_*.cpp must not emit inline functions of the standard library: the
// linker might keep a copy that uses instructions which this machine lacks.
#ifndef CLEAVE_RUNTIME_CPU_MICRO_H
#define CLEAVE_RUNTIME_CPU_MICRO_H

#include <stdint.h>

namespace cleave {

// A stored bf16 value; kernels compute in f32. Conversion rounds to nearest,
// ties to even.
struct Bf16 {
  uint16_t bits;
  __attribute__((always_inline)) operator float() const {
    return __builtin_bit_cast(float, uint32_t(bits) << 16);
  }
  __attribute__((always_inline)) Bf16 &operator=(float x) {
    uint32_t whole = __builtin_bit_cast(uint32_t, x);
    bits = x != x ? 0x7fc0 | whole >> 16
                  : (whole + 0x7fff + (whole >> 16 & 1)) >> 16;
    return *this;
  }
};

// The type in which values of a type are computed with.
template <class S> struct ComputeOf {
  using Type = S;
};
template <> struct ComputeOf<Bf16> {
  using Type = float;
};
template <class S> using Compute = typename ComputeOf<S>::Type;

// One matrix product of a batch. Strides are in elements. The values of
// `activation` are those of program::Activation.
template <class S> struct GemmProblem {
  using T = Compute<S>;
  int64_t m, n, k;
  const S *a, *b;
  int64_t aRow, aCol, bRow, bCol, cRow, cCol;
  S *c, *preActivation; // preActivation may be null
  T *wideC;             // C of a bf16 product whose result is f32; else null
  const S *bias;        // may be null
  T alpha;
  bool accumulate;
  int activation;
  // Offsets in elements of each row of A, column of A, row of B and row of C.
  // Each array is used in place of the stride of its dimension, or is null if
  // the stride applies.
  const int64_t *aRowAt, *aColAt, *bRowAt, *cRowAt;
};

// The tile that gemmTile computes at once; a multiple of every register block.
inline constexpr int64_t gemmTileRows = 96, gemmTileColumns = 256;

// The lowest and highest position and segment in a block of queries or of keys.
// Keys that the key mask hides are left out; `count` is the number of queries,
// or of keys that are not hidden.
struct AttentionBlock {
  int64_t lowPosition, highPosition, lowSegment, highSegment, count;
};

// The position or the segment of each query or key, as an array [batch,
// position]. If `data` is null, the position of query or key i is offset + i.
struct AttentionIndex {
  const int64_t *data;
  int64_t strides[2];
  int64_t offset;
  int64_t at(int64_t b, int64_t i) const {
    return data ? data[b * strides[0] + i * strides[1]] : offset + i;
  }
};

template <class S> struct AttentionProblem {
  using T = Compute<S>;
  int64_t b, qLen, kLen, n, g, d, dv;
  // Strides of [batch, position, kv head, group, feature].
  template <class E> struct ArrayOf {
    E *data;
    int64_t strides[5];
    E *at(int64_t b, int64_t s, int64_t n, int64_t g) const {
      return data + b * strides[0] + s * strides[1] + n * strides[2] +
             g * strides[3];
    }
  };
  using Array = ArrayOf<S>;
  Array q, k, v, o, dO, dq, dk, dV;
  ArrayOf<T> lse;
  T scale, softcap; // softcap 0: none
  bool causal;
  int64_t window; // 0: none
  AttentionIndex queryPositions, keyPositions, querySegments, keySegments;
  const uint8_t *keyMask; // [b, key]; may be null
  int64_t keyMaskStrides[2];
  const T *bias;          // may be null
  int64_t biasStrides[5]; // [b, query, n, g, key]
  // Dropout. `dropoutKeys` is null if nothing is dropped.
  const int64_t *dropoutKeys;
  int64_t dropoutStrides[5]; // [b, -, n, g, -]
  AttentionIndex queryIndices, keyIndices;
  uint64_t leastKept;
  T keptScale;
  // The position and segment ranges of each block of queries and of keys, for
  // each sample, or only once if blockSamples is 1. Null if every query sees
  // every key.
  AttentionBlock *queryBlocks, *keyBlocks;
  int64_t blockSamples;
  T *delta; // backward: [b, n, g, qLen], rowsum(dO * o)
};

// Returns the number of scratch elements in which each thread sums dq if the
// output has a narrower type than the computation; else 0.
template <class S> int64_t attentionSums(int64_t qLen, int64_t g, int64_t d) {
  return sizeof(S) < sizeof(Compute<S>) ? (qLen * g * d + 63) / 64 * 64 : 0;
}

// Queries and keys per block.
inline constexpr int64_t attentionQueries = 48, attentionKeys = 96;
inline constexpr int64_t blocksOf(int64_t length, int64_t size) {
  return (length + size - 1) / size;
}

template <class S> struct MicroKernels {
  using T = Compute<S>;
  // Computes rows [m0, m1) and columns [n0, n1) of C, at most one tile.
  void (*gemmTile)(const GemmProblem<S> &problem, int64_t m0, int64_t m1,
                   int64_t n0, int64_t n1, T *scratch);
  int64_t (*gemmScratch)(); // in elements, per thread

  // dst[i] = activation(src[i])
  void (*activate)(int activation, const S *src, S *dst, int64_t count);

  // Computes one block of queries of one head. Like attentionBackward, it
  // returns the number of scores that it computed: blocks in which no query
  // sees a key are skipped.
  int64_t (*attentionForward)(const AttentionProblem<S> &problem, int64_t b,
                              int64_t n, int64_t g, int64_t queryBlock,
                              T *scratch);
  // Computes the gradients for all queries and keys of one KV head.
  int64_t (*attentionBackward)(const AttentionProblem<S> &problem, int64_t b,
                               int64_t n, T *scratch);
  // The scratch memory per thread, in elements. The backward pass in bf16 needs
  // attentionSums() elements in addition, for dq of all queries of a KV head.
  int64_t (*attentionScratch)(int64_t d, int64_t dv);
};

struct MicroSet {
  const char *name;
  bool (*available)();
  MicroKernels<float> f32;
  MicroKernels<double> f64;
  MicroKernels<Bf16> bf16;
};

extern const MicroSet microBaseline, microAvx2, microAvx512;

// Returns the kernels for the best instruction set of this machine. The
// environment variable CLEAVE_ISA=baseline|avx2|avx512 overrides the choice.
const MicroSet &microKernels();

template <class T> const MicroKernels<T> &kernelsOf(const MicroSet &set);
template <> inline const MicroKernels<float> &kernelsOf(const MicroSet &set) {
  return set.f32;
}
template <> inline const MicroKernels<double> &kernelsOf(const MicroSet &set) {
  return set.f64;
}

template <> inline const MicroKernels<Bf16> &kernelsOf(const MicroSet &set) {
  return set.bf16;
}

} // namespace cleave

#endif // CLEAVE_RUNTIME_CPU_MICRO_H
