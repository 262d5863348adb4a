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

// Returns a product by cuBLASLt if it supports the layout and the type, else by
// makePlainGemm. If cuBLASLt lacks a part of the epilogue, a kernel of ours
// runs after the product. The algorithm is chosen here, once. With `allowTf32`,
// f32 products may round their operands to 10 bits of mantissa. `isOwn` is set
// if cuBLASLt supports the layout and the type but had no algorithm, so that
// our kernel computes the product.
Enqueue makeGemm(Device &device, const program::Gemm &gemm,
                 const GemmBuffers &buffers, int64_t workspaceBytes,
                 bool allowTf32 = false, bool *isOwn = nullptr);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_BLAS_H
