// Loads small bf16 matrices from shared memory and multiplies them. The lanes
// of a warp hold each matrix together, distributed as the instruction
// mma.m16n8k16 requires.
//
// Lane 4 g + t holds these elements:
// - C [16, 8]: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1);
// - A [16, 16]: pairs along k that begin at (g, 2t), (g + 8, 2t), (g, 2t + 8),
//   (g + 8, 2t + 8);
// - B [16, 8]: pairs along k that begin at (2t, g), (2t + 8, g).
#ifndef CLEAVE_RUNTIME_CUDA_KERNELS_MATRIX_UNITS_H
#define CLEAVE_RUNTIME_CUDA_KERNELS_MATRIX_UNITS_H

#include "device_code.h"

namespace cleave::cuda::device {

CLEAVE_DEVICE int ownLane() { return int(threadIdx.x % 32); }

/// Returns two numbers, rounded to bf16, in one word: `low` in the lower half.
CLEAVE_DEVICE uint32_t packed(float low, float high) {
#ifdef __CUDACC__
  uint32_t out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
#else
  return narrow(low).bits | uint32_t(narrow(high).bits) << 16;
#endif
}

#ifndef __CUDACC__
namespace emulated {
struct Operands {
  uint32_t a[4], b[2];
};
inline float half(uint32_t pair, int which) {
  return floatOf(which ? pair & 0xffff0000 : pair << 16);
}
/// Returns the value that a lane has passed to emulation::exchange.
template <class T> const T &of(int lane) {
  return *static_cast<const T *>(emulation::slotOf(lane));
}
inline void multiplyAdd(float *c, const Operands &own) {
  emulation::exchange(allLanes, own, 0);
  int g = ownLane() / 4, t = ownLane() % 4;
  float a[2][16], b[2][16]; // two rows of A, two columns of B
  for (int k = 0; k < 16; ++k)
    for (int i = 0; i < 2; ++i) {
      const auto &row = of<Operands>(4 * g + k % 8 / 2);
      const auto &column = of<Operands>(4 * (2 * t + i) + k % 8 / 2);
      a[i][k] = half(row.a[k / 8 * 2 + i], k % 2);
      b[i][k] = half(column.b[k / 8], k % 2);
    }
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < 16; ++k)
      c[i] += a[i / 2][k] * b[i % 2][k];
}
template <bool isTransposed>
void loadMatrices(uint32_t *out, const uint16_t *row) {
  emulation::exchange(allLanes, row, 0);
  int g = ownLane() / 4, t = ownLane() % 4;
  for (int j = 0; j < 4; ++j) {
    auto element = [&](int r, int c) {
      return uint32_t(of<const uint16_t *>(8 * j + r)[c]);
    };
    uint32_t low = isTransposed ? element(2 * t, g) : element(g, 2 * t);
    uint32_t high =
        isTransposed ? element(2 * t + 1, g) : element(g, 2 * t + 1);
    out[j] = low | high << 16;
  }
}
} // namespace emulated
#endif

/// c += a b, in the distribution over lanes that is described above.
CLEAVE_DEVICE void multiplyAdd(float (&c)[4], const uint32_t (&a)[4],
                               uint32_t b0, uint32_t b1) {
#ifdef __CUDACC__
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  emulated::multiplyAdd(c, {{a[0], a[1], a[2], a[3]}, {b0, b1}});
#endif
}

/// Loads four matrices of 8 x 8. Lanes 0 to 7 give the addresses of the rows of
/// the first matrix, lanes 8 to 15 those of the second, and so on. The
/// addresses are in shared memory, at multiples of 16 bytes. Lane 4 g + t
/// receives elements 2t and 2t + 1 of row g, or of column g if transposed.
template <bool isTransposed>
CLEAVE_DEVICE void loadMatrices(uint32_t (&out)[4], const uint16_t *row) {
#ifdef __CUDACC__
  auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (isTransposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
                 "{%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(at)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 "
                 "{%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(at)
                 : "memory");
#else
  emulated::loadMatrices<isTransposed>(out, row);
#endif
}

/// Loads an operand A [16, 16] from the memory that begins at `from`. Its order
/// in memory is [row][k], or [k][row] if transposed.
template <bool isTransposed, int pitch>
CLEAVE_DEVICE void loadLeft(uint32_t (&out)[4], const uint16_t *from) {
  int lane = ownLane();
  if constexpr (isTransposed)
    loadMatrices<true>(out, from + (lane / 16 * 8 + lane % 8) * pitch +
                                lane / 8 % 2 * 8);
  else
    loadMatrices<false>(out, from + lane % 16 * pitch + lane / 16 * 8);
}

/// Loads two adjacent operands B, each [16, 8]: columns 0 to 7 into out[0] and
/// out[1], columns 8 to 15 into out[2] and out[3]. Their order in memory is
/// [column][k], or [k][column] if transposed.
template <bool isTransposed, int pitch>
CLEAVE_DEVICE void loadRight(uint32_t (&out)[4], const uint16_t *from) {
  int lane = ownLane();
  if constexpr (isTransposed)
    loadMatrices<true>(out, from + lane % 16 * pitch + lane / 16 * 8);
  else
    loadMatrices<false>(out, from + (lane / 16 * 8 + lane % 8) * pitch +
                                 lane / 8 % 2 * 8);
}

} // namespace cleave::cuda::device

#endif // CLEAVE_RUNTIME_CUDA_KERNELS_MATRIX_UNITS_H
