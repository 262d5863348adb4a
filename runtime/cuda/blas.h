// Products by cuBLASLt, with what it fuses: bias, activation, the activation's
// operand or its derivative, sums of an operand.
#ifndef CLEAVE_RUNTIME_CUDA_BLAS_H
#define CLEAVE_RUNTIME_CUDA_BLAS_H

#include "kernels.h"

namespace cleave::cuda {

// cuBLASLt of the current device.
class Blas {
public:
  static Blas &of(Device &device);
  const cublasLtHandle_t handle;

private:
  explicit Blas(cublasLtHandle_t handle) : handle(handle) {}
};

// By cuBLASLt where it has the layout and the type, else by makePlainGemm; what
// the epilogue lacks is done by a kernel of ours after the product. The
// algorithm is chosen here, once. With `allowTf32` products of f32 may round
// their operands to 10 bits of mantissa. `isOwn` says whether cuBLASLt was
// asked and had nothing.
Enqueue makeGemm(Device &device, const program::Gemm &gemm,
                 const GemmBuffers &buffers, int64_t workspaceBytes,
                 bool allowTf32 = false, bool *isOwn = nullptr);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_BLAS_H
