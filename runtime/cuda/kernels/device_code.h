// Declarations that all kernels share. Kernels are compiled by a CUDA compiler
// for devices and, unchanged, by a C++ compiler for CPUs (emulation.h). A
// kernel is `extern "C" __global__ void cleave_NAME(...)` and is listed at the
// end of its file: CLEAVE_KERNELS(family, CLEAVE_KERNEL(NAME), ...).
#ifndef CLEAVE_RUNTIME_CUDA_KERNELS_DEVICE_CODE_H
#define CLEAVE_RUNTIME_CUDA_KERNELS_DEVICE_CODE_H

#include "arguments.h"

#ifdef __CUDACC__
#define CLEAVE_KERNELS(family, ...)
#else
#include "emulation.h"
#define CLEAVE_KERNEL(name)                                                    \
  cleave::cuda::emulation::Call<cleave_##name>::entry("cleave_" #name)
#define CLEAVE_KERNELS(family, ...)                                            \
  namespace cleave::cuda {                                                     \
  extern const EmulatedKernel family##Kernels[] = {__VA_ARGS__, {}};           \
  }
#endif

#define CLEAVE_DEVICE __device__ __forceinline__

namespace cleave::cuda::device {

constexpr unsigned allLanes = ~0u;

// A stored bf16 value. Conversion rounds to nearest, ties to even; NaN becomes
// 0x7fc0.
struct Bf16 {
  uint16_t bits;
};

CLEAVE_DEVICE float floatOf(uint32_t bits) {
#ifdef __CUDACC__
  return __uint_as_float(bits);
#else
  float out;
  std::memcpy(&out, &bits, sizeof(out));
  return out;
#endif
}
CLEAVE_DEVICE uint32_t bitsOf(float x) {
#ifdef __CUDACC__
  return __float_as_uint(x);
#else
  uint32_t out;
  std::memcpy(&out, &x, sizeof(out));
  return out;
#endif
}
CLEAVE_DEVICE float widen(Bf16 x) { return floatOf(uint32_t(x.bits) << 16); }
CLEAVE_DEVICE Bf16 narrow(float x) {
  if (x != x)
    return {0x7fc0};
#ifdef __CUDACC__
  Bf16 out;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out.bits) : "f"(x));
  return out;
#else
  uint32_t whole = bitsOf(x);
  return {uint16_t((whole + 0x7fff + (whole >> 16 & 1)) >> 16)};
#endif
}

CLEAVE_DEVICE int64_t minOf(int64_t a, int64_t b) { return a < b ? a : b; }
CLEAVE_DEVICE int64_t maxOf(int64_t a, int64_t b) { return a > b ? a : b; }

CLEAVE_DEVICE unsigned char *sharedMemory() {
#ifdef __CUDACC__
  extern __shared__ __align__(128) unsigned char cleaveShared[];
  return cleaveShared;
#else
  return emulation::dynamicShared();
#endif
}

CLEAVE_DEVICE uint32_t divide(uint32_t x, const Divider &by) {
  return (__umulhi(x, by.multiplier) + x) >> by.shift;
}

CLEAVE_DEVICE float expOf(float x) { return expf(x); }
CLEAVE_DEVICE double expOf(double x) { return exp(x); }
CLEAVE_DEVICE float logOf(float x) { return logf(x); }
CLEAVE_DEVICE double logOf(double x) { return log(x); }
CLEAVE_DEVICE float tanhOf(float x) { return tanhf(x); }
CLEAVE_DEVICE double tanhOf(double x) { return tanh(x); }
CLEAVE_DEVICE float erfOf(float x) { return erff(x); }
CLEAVE_DEVICE double erfOf(double x) { return erf(x); }

} // namespace cleave::cuda::device

#endif // CLEAVE_RUNTIME_CUDA_KERNELS_DEVICE_CODE_H
