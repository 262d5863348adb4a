// Matrix products by cuBLASLt, and the parts of an epilogue that it computes
// with the product: the bias, the activation, storing the activation's operand,
// multiplying by the activation's derivative, and the row sums of A or the
// column sums of B.
#ifndef CLEAVE_RUNTIME_CUDA_BLAS_H
#define CLEAVE_RUNTIME_CUDA_BLAS_H

#include "kernels.h"

namespace cleave::cuda {

// The cuBLASLt handle of a device.
class Blas {
public:
  static Blas &of(Device &device);
  const cublasLtHandle_t handle;

private:
  explicit Blas(cublasLtHandle_t handle) : handle(handle) {}
};

// Returns a call that computes the product by cuBLASLt if cuBLASLt supports the
// layout and the type, else by the kernels of makePlainGemm(). Parts of the
// epilogue that cuBLASLt lacks are computed by another kernel after the
// product. makeGemm() chooses the algorithm once, for all runs of the call.
// With `allowTf32`, f32 products may round their operands to 10 bits of
// mantissa. `isOwn` is set if makePlainGemm() computes the product although
// cuBLASLt supports the layout and the type, because cuBLASLt offered no
// algorithm.
Enqueue makeGemm(Device &device, const program::Gemm &gemm,
                 const GemmBuffers &buffers, int64_t workspaceBytes,
                 bool allowTf32 = false, bool *isOwn = nullptr);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_BLAS_H
