// Instructions that only Hopper devices (sm_90a) have: matrix products of a
// warpgroup (four warps) with operands in shared memory. Also asynchronous
// copies to shared memory.
//
// An operand is a tile of bf16 numbers in shared memory. Every 128 bytes of it
// (64 numbers) are called a line here, and every 8 lines a piece (1024 bytes).
// Lines are swizzled to avoid bank conflicts: unit u of 16 bytes of line l is
// stored at unit u ^ l % 8. A line holds numbers that are adjacent either along
// the summed dimension (PTX: K-major) or "across" it, that is, along the rows
// or columns of the result (PTX: MN-major); see "Asynchronous warpgroup level
// matrix instructions" in the PTX manual.
#ifndef CLEAVE_RUNTIME_CUDA_KERNELS_WARPGROUP_H
#define CLEAVE_RUNTIME_CUDA_KERNELS_WARPGROUP_H

#include "matrix_units.h"

#ifndef __CUDACC__
#include <array>
#endif

namespace cleave::cuda::device {

constexpr int lineBytes = 128, lineNumbers = 64, pieceBytes = 1024;
/// The sizes of the product of one instruction: [64, 16] times [16, 256].
constexpr int warpgroupRows = 64, warpgroupColumns = 256, warpgroupDepth = 16;
/// The sums that a lane holds. For lane 4 g + t of warp w, sums[4 j + 2 h + i]
/// is element (16 w + g + 8 h, 8 j + 2 t + i) of the product.
using WarpgroupSums = float[128];

/// Returns the address in shared memory, in bytes.
CLEAVE_DEVICE uint32_t sharedAddress(const void *at) {
#ifdef __CUDACC__
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
#else
  return emulation::sharedAddress(at);
#endif
}

/// Starts an asynchronous copy of 16 bytes to shared memory; if `isThere` is
/// false, 16 zeros are written instead. In both cases `from` must be a valid
/// address, a multiple of 16.
CLEAVE_DEVICE void copyUnit(void *to, const void *from, bool isThere) {
#ifdef __CUDACC__
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(sharedAddress(to)), "l"(from), "r"(isThere ? 16 : 0)
               : "memory");
#else
  emulation::copyUnit(to, from, isThere);
#endif
}
/// Ends a group of asynchronous copies, which may be empty.
CLEAVE_DEVICE void commitCopies() {
#ifdef __CUDACC__
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  emulation::commit(emulation::Copies);
#endif
}
/// Waits until at most `most` groups of the thread's copies are in flight.
/// Products see the data after the next barrier.
template <int most> CLEAVE_DEVICE void waitForCopies() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_group %0;\n"
               "fence.proxy.async.shared::cta;" ::"n"(most)
               : "memory");
#else
  emulation::waitFor(emulation::Copies, most);
#endif
}

/// Returns the PTX matrix descriptor of the part of a tile that begins at
/// shared address `at`. `stride` is the distance in bytes between pieces
/// (groups of 8 lines of 128 bytes). `leading` matters only for MN-major
/// operands, whose lines hold 64 adjacent rows or columns of the result: it is
/// the distance in bytes between blocks of 64 rows or columns.
CLEAVE_DEVICE uint64_t operandOf(uint32_t at, uint32_t leading,
                                 uint32_t stride) {
  constexpr uint64_t swizzle128 = uint64_t(1) << 62;
  auto field = [](uint32_t bytes) { return uint64_t(bytes >> 4 & 0x3fff); };
  return field(at) | field(leading) << 16 | field(stride) << 32 | swizzle128;
}

#ifndef __CUDACC__
namespace emulated {
/// Returns the element of an operand at index `k` along the summed dimension
/// and `outer` along the other one.
inline uint16_t elementOf(uint64_t operand, bool isAcross, int outer, int k) {
  constexpr uint64_t fields = 0x00003fff3fff3fff;
  if ((operand & ~fields) != uint64_t(1) << 62)
    emulation::complain("multiplies an operand that is not swizzled by 128 "
                        "bytes from a multiple of 1024");
  auto field = [&](int shift) {
    return uint32_t(operand >> shift & 0x3fff) << 4;
  };
  uint32_t at = field(0), leading = field(16), stride = field(32);
  if (isAcross)
    at += uint32_t(outer / lineNumbers) * leading + uint32_t(k / 8) * stride +
          uint32_t(k % 8 * lineBytes + outer % lineNumbers * 2);
  else
    at +=
        uint32_t(outer / 8) * stride + uint32_t(outer % 8 * lineBytes + k * 2);
  at ^= (at >> 7 & 7) << 4;
  uint16_t out;
  std::memcpy(&out, emulation::sharedAt(at, 2), 2);
  return out;
}

/// The operands of a product, from which each thread computes its sums.
struct Product {
  uint64_t a, b;
  bool leftAcross, rightAcross;

  uint16_t left(int h, int k) const {
    int row = int(threadIdx.x) / 32 % 4 * 16 + ownLane() / 4 + 8 * h;
    return elementOf(a, leftAcross, row, k);
  }
  uint16_t right(int j, int i, int k) const {
    return elementOf(b, rightAcross, 8 * j + ownLane() % 4 * 2 + i, k);
  }
  std::array<float, 128> compute() const {
    auto widened = [](uint16_t bits) { return widen(Bf16{bits}); };
    std::array<float, 128> out = {};
    float rows[2][warpgroupDepth];
    for (int h = 0; h < 2; ++h)
      for (int k = 0; k < warpgroupDepth; ++k)
        rows[h][k] = widened(left(h, k));
    for (int j = 0; j < warpgroupColumns / 8; ++j)
      for (int i = 0; i < 2; ++i)
        for (int k = 0; k < warpgroupDepth; ++k) {
          float x = widened(right(j, i, k));
          for (int h = 0; h < 2; ++h)
            out[4 * j + 2 * h + i] += rows[h][k] * x;
        }
    return out;
  }
  /// Returns a checksum of the operands, to detect that they are overwritten
  /// while the product is in flight. Several lanes read the same columns of the
  /// right operand; each of these lanes checks only some of the columns.
  uint32_t look() const {
    uint32_t seen = 0;
    for (int k = 0; k < warpgroupDepth; ++k) {
      seen = (seen * 31 + left(0, k)) * 31 + left(1, k);
      for (int j = ownLane() / 4; j < warpgroupColumns / 8; j += 8)
        seen = (seen * 31 + right(j, 0, k)) * 31 + right(j, 1, k);
    }
    return seen;
  }
};

/// Emulates an asynchronous product. The sums are updated when the product is
/// waited for; until then the operands must not be overwritten.
inline void multiplyAdd(WarpgroupSums &sums, const Product &product,
                        bool accumulates) {
  auto first = emulation::exchange(allLanes, product, 0);
  if (first.a != product.a || first.b != product.b)
    emulation::complain("multiplies other operands than its warp does");
  emulation::begin(emulation::Products, [=, to = &sums[0],
                                         seen = product.look(),
                                         result = product.compute()] {
    if (product.look() != seen)
      emulation::complain("writes the operands of a product that is under way");
    for (size_t i = 0; i < result.size(); ++i)
      to[i] = accumulates ? to[i] + result[i] : result[i];
  });
}
} // namespace emulated
#endif

/// Keeps the compiler from moving accesses to the sums across this point. The
/// compiler does not know that asynchronous products write them until they are
/// waited for.
CLEAVE_DEVICE void pin(WarpgroupSums &sums) {
#ifdef __CUDACC__
#pragma unroll
  for (int i = 0; i < 128; ++i)
    asm volatile("" : "+f"(sums[i])::"memory");
#endif
}
/// Must be called before products, after all other accesses to their sums.
CLEAVE_DEVICE void beginProducts(WarpgroupSums &sums) {
#ifdef __CUDACC__
  pin(sums);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
/// Ends a group of products.
CLEAVE_DEVICE void commitProducts() {
#ifdef __CUDACC__
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#else
  emulation::commit(emulation::Products);
#endif
}
/// Waits until at most `most` groups of asynchronous products are in flight.
/// Their sums may be read only after waiting with `most` = 0.
template <int most> CLEAVE_DEVICE void waitForProducts(WarpgroupSums &sums) {
#ifdef __CUDACC__
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(most) : "memory");
  if constexpr (most == 0)
    pin(sums);
#else
  emulation::waitFor(emulation::Products, most);
#endif
}

/// Starts an asynchronous product: sums += a b if `accumulates`, else sums = a
/// b, with the matrix descriptors `a` (left) and `b` (right). All lanes of a
/// warpgroup must call it together. `leftAcross` and `rightAcross` say whether
/// the operand's lines run across the summed dimension (MN-major) or along it
/// (K-major).
template <bool leftAcross, bool rightAcross>
CLEAVE_DEVICE void multiplyAdd(WarpgroupSums &sums, uint64_t a, uint64_t b,
                               bool accumulates) {
#ifdef __CUDACC__
#define CLEAVE_SUMS(i)                                                         \
  "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]),      \
      "+f"(sums[i + 4]), "+f"(sums[i + 5]), "+f"(sums[i + 6]),                 \
      "+f"(sums[i + 7])
  asm volatile(
      "{\n"
      ".reg .pred accumulate;\n"
      "setp.ne.b32 accumulate, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, "
      "%72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, "
      "%88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, "
      "%104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, "
      "%120, %121, %122, %123, %124, %125, %126, %127}, "
      "%128, %129, accumulate, 1, 1, %131, %132;\n"
      "}"
      : CLEAVE_SUMS(0), CLEAVE_SUMS(8), CLEAVE_SUMS(16), CLEAVE_SUMS(24),
        CLEAVE_SUMS(32), CLEAVE_SUMS(40), CLEAVE_SUMS(48), CLEAVE_SUMS(56),
        CLEAVE_SUMS(64), CLEAVE_SUMS(72), CLEAVE_SUMS(80), CLEAVE_SUMS(88),
        CLEAVE_SUMS(96), CLEAVE_SUMS(104), CLEAVE_SUMS(112), CLEAVE_SUMS(120)
      : "l"(a), "l"(b), "r"(int(accumulates)), "n"(int(leftAcross)),
        "n"(int(rightAcross)));
#undef CLEAVE_SUMS
#else
  emulated::multiplyAdd(sums, {a, b, leftAcross, rightAcross}, accumulates);
#endif
}

} // namespace cleave::cuda::device

#endif // CLEAVE_RUNTIME_CUDA_KERNELS_WARPGROUP_H
