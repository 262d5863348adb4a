// Arguments of the kernels, as makers fill them in: plain data, shared by host
// and device. Strides are in bytes unless a comment says otherwise.
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
// Innermost dimension first; `units` of the kernel's width in all.
struct CopyArguments {
  char *dst;
  const char *src;
  int64_t units;
  int32_t dims;
  Divider divider[copyDims];
  int64_t size[copyDims];
  int64_t dstStride[copyDims], srcStride[copyDims];
};

// `head` bytes, `units` of 16, `tail` bytes; `pattern` as it is at dst.
struct FillArguments {
  char *dst;
  int64_t head, units, tail;
  uint64_t pattern;
};

constexpr int reduceSources = 256;
// Rows of `vectors` vectors, the last of which may be cut: `count` elements.
struct ReduceArguments {
  char *dst;
  const char *srcs[reduceSources];
  int32_t numSrcs, op; // program::ReduceOp
  int64_t rows, vectors, count, dstStride, srcStride;
};

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_KERNELS_ARGUMENTS_H
