// What every backend asks of a matrix product.

#include "products.h"

using namespace cleave;
using namespace cleave::program;

std::string cleave::checkGemm(const Gemm &gemm) {
  if (gemm.dtype != DType::F32 && gemm.dtype != DType::F64 &&
      gemm.dtype != DType::BF16)
    return std::string("gemm in ") + nameOf(gemm.dtype) +
           " is not supported; use f32, f64 or bf16";
  if (gemm.wideResult && gemm.dtype != DType::BF16)
    return std::string("gemm in ") + nameOf(gemm.dtype) +
           " whose result is to be f32: only that of bf16 is wider";
  if (gemm.wideResult && gemm.preActivation.present())
    return "gemm in bf16 with two results of f32 is not supported";
  constexpr int64_t limit = int64_t(1) << 31;
  __int128 work = 1;
  for (int64_t size : {gemm.m, gemm.n, gemm.k})
    if (size < 0 || size > limit)
      return "gemm of size " + std::to_string(size);
  for (const MatrixRef *matrix : {&gemm.a, &gemm.b, &gemm.c})
    if (matrix->batchStrides.size() != gemm.batch.size())
      return "gemm with " + std::to_string(gemm.batch.size()) +
             " batch dimensions has an operand with " +
             std::to_string(matrix->batchStrides.size());
  for (size_t i = 0; i < gemm.batch.size(); ++i) {
    work *= gemm.batch[i];
    if (gemm.batch[i] < 0 || work > limit)
      return "gemm with a batch of " + std::to_string(gemm.batch[i]);
    if (gemm.batch[i] > 1 && gemm.c.batchStrides[i] == 0)
      return "gemm that writes one output for a whole batch";
  }
  if (gemm.preActivation.present() && gemm.c.colStride != 1 && gemm.n > 1)
    return "gemm with a second output needs contiguous rows";
  bool isPlain = !gemm.bias.present() && !gemm.preActivation.present();
  if (gemm.derivativeAt.present() &&
      (gemm.activation != program::Activation::GeluTanh || gemm.accumulate ||
       gemm.wideResult || gemm.sums.present() || !isPlain))
    return "gemm with a derivative of other than gelu_tanh, or with a bias, an "
           "accumulator, a second output or a wider one";
  if (gemm.sums.present() && (gemm.activation != program::Activation::None ||
                              !isPlain || !gemm.batch.empty()))
    return "gemm with sums of an operand and with a bias, an activation or a "
           "batch";
  return "";
}
