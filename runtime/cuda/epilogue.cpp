// Launches the epilogue of a matrix product.

#include "epilogue.h"

#include "error.h"
#include "kernels/epilogue.h"

#include <algorithm>

using namespace cleave;
using namespace cleave::cuda;
using program::DType;

namespace {
// Returns the kernel's name: `family` with a suffix for the types of C and of
// the other operands.
std::string variantOf(const char *family, const program::Gemm &gemm) {
  return std::string(family) + (gemm.dtype == DType::F64   ? "_f64"
                                : gemm.dtype == DType::F32 ? "_f32"
                                : gemm.wideResult          ? "_wide"
                                                           : "_bf16");
}
} // namespace

Enqueue cuda::makeEpilogue(Kernels &kernels, const program::Gemm &gemm,
                           const GemmBuffers &buffers, bool addsBias) {
  bool hasBias = addsBias && gemm.bias.present();
  if (!hasBias && !gemm.preActivation.present() &&
      gemm.activation == program::Activation::None)
    return [](CUstream) {};
  EpilogueArguments all{};
  all.c = static_cast<char *>(buffers.c);
  if (gemm.preActivation.present())
    all.preActivation = static_cast<char *>(buffers.preActivation);
  if (gemm.derivativeAt.present())
    all.derivativeAt = static_cast<const char *>(buffers.derivativeAt);
  if (hasBias)
    all.bias = static_cast<const char *>(buffers.bias);
  all.activation = static_cast<int32_t>(gemm.activation);
  // Dimensions are added innermost first, so that neighbouring threads access
  // neighbouring elements.
  auto add = [&](int64_t size, int64_t stride) {
    if (size == 1)
      return;
    if (all.dims == epilogueDims)
      fail(CLEAVE_UNSUPPORTED, "gemm with more than " +
                                   std::to_string(epilogueDims - 2) +
                                   " batch dimensions and an activation");
    all.size[all.dims] = size;
    all.stride[all.dims++] = stride;
  };
  bool columnsFirst = gemm.c.colStride <= gemm.c.rowStride || gemm.m == 1;
  all.columnDim = -1;
  for (bool isColumn : {columnsFirst, !columnsFirst}) {
    if (isColumn && gemm.n != 1)
      all.columnDim = all.dims;
    add(isColumn ? gemm.n : gemm.m,
        isColumn ? gemm.c.colStride : gemm.c.rowStride);
  }
  for (size_t i = gemm.batch.size(); i-- > 0;)
    add(gemm.batch[i], gemm.c.batchStrides[i]);
  all.count = 1;
  for (int i = 0; i < all.dims; ++i)
    all.count *= all.size[i];
  constexpr int threads = 256;
  int64_t blocks = std::min<int64_t>((all.count + threads - 1) / threads,
                                     8 * kernels.device.processors());
  return [&kernels, all, name = variantOf("cleave_epilogue", gemm),
          blocks](CUstream stream) {
    kernels.launch(name.c_str(), blocks, threads, 0, stream, all);
  };
}

Enqueue cuda::makeOperandSums(Kernels &kernels, const program::Gemm &gemm,
                              const GemmBuffers &buffers) {
  if (!gemm.sums.present() || gemm.numSums() == 0)
    return [](CUstream) {};
  bool isOfA = gemm.sumsOf == program::GemmOperand::A;
  OperandSumsArguments all{};
  all.to = static_cast<char *>(buffers.sums);
  all.from = static_cast<const char *>(isOfA ? buffers.a : buffers.b);
  all.rows = gemm.k;
  all.columns = gemm.numSums();
  all.rowStride = isOfA ? gemm.a.colStride : gemm.b.rowStride;
  all.columnStride = isOfA ? gemm.a.rowStride : gemm.b.colStride;
  constexpr int threads = sumsColumns * sumsLanes;
  int64_t shared = threads * (gemm.dtype == DType::F64 ? 8 : 4);
  int64_t blocks = (all.columns + sumsColumns - 1) / sumsColumns;
  return [&kernels, all, name = variantOf("cleave_operand_sums", gemm), blocks,
          shared](CUstream stream) {
    kernels.launch(name.c_str(), blocks, threads, shared, stream, all);
  };
}
