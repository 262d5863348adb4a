// Products by cuBLASLt.

#include "blas.h"

#include "blas_layout.h"
#include "epilogue.h"
#include "error.h"
#include "products.h"

#include <algorithm>
#include <memory>
#include <numeric>

using namespace cleave;
using namespace cleave::cuda;
using program::Activation;
using program::DType;
using program::Gemm;

namespace {
void destroy(cublasLtMatmulDesc_t at) {
  (void)blas().cublasLtMatmulDescDestroy(at);
}
void destroy(cublasLtMatrixLayout_t at) {
  (void)blas().cublasLtMatrixLayoutDestroy(at);
}
void destroy(cublasLtMatmulPreference_t at) {
  (void)blas().cublasLtMatmulPreferenceDestroy(at);
}
using Description = Owned<cublasLtMatmulDesc_t, destroy>;
using Layout = Owned<cublasLtMatrixLayout_t, destroy>;
using Preference = Owned<cublasLtMatmulPreference_t, destroy>;

constexpr int64_t bestAlignment = 256;
// The required alignment of the epilogue's additional operands and results.
constexpr int64_t epilogueAlignment = 16;

std::string describe(const Gemm &gemm) {
  std::string out = "gemm of " + std::to_string(gemm.m) + " x " +
                    std::to_string(gemm.n) + " x " + std::to_string(gemm.k) +
                    " in " + nameOf(gemm.dtype);
  for (int64_t size : gemm.batch)
    out += ", batch " + std::to_string(size);
  return out;
}

cudaDataType typeOf(DType type) {
  return type == DType::F64    ? CUDA_R_64F
         : type == DType::BF16 ? CUDA_R_16BF
                               : CUDA_R_32F;
}

// The part of the epilogue that cuBLASLt computes. A kernel of the runtime
// computes the other parts.
struct Fused {
  bool bias = false, activation = false, sums = false;
  // True if cuBLASLt uses an auxiliary array: it writes the activation's
  // operand there, or it multiplies by the activation's derivative at the
  // operand that it reads there.
  bool aux = false;
};

// Returns the array with the activation's operand, which the product writes if
// it has preActivation and reads if it has derivativeAt; null if it has
// neither.
const char *auxOf(const Gemm &gemm, const GemmBuffers &buffers) {
  return static_cast<const char *>(
      gemm.derivativeAt.present()    ? buffers.derivativeAt
      : gemm.preActivation.present() ? buffers.preActivation
                                     : nullptr);
}

// Returns whether the operand whose rows or columns are summed (Gemm::sums) is
// cuBLASLt's A.
bool sumsFirst(const Gemm &gemm, const BlasLayout &layout) {
  return (gemm.sumsOf == program::GemmOperand::A) != layout.isSwapped;
}

// A product that is prepared once and can be enqueued many times.
class BlasProduct {
public:
  BlasProduct(Device &device, const Gemm &gemm, const GemmBuffers &buffers,
              const BlasLayout &layout, int64_t workspaceBytes, bool allowTf32)
      : handle(Blas::of(device).handle), layout(layout), buffers(buffers),
        what(describe(gemm)), size(program::sizeOf(gemm.dtype)),
        resultSize(program::sizeOf(gemm.resultType())),
        workspaceBytes(workspaceBytes), isDouble(gemm.dtype == DType::F64),
        alpha(gemm.alpha), beta(gemm.accumulate ? 1 : 0) {
    cublasComputeType_t compute = isDouble ? CUBLAS_COMPUTE_64F
                                  : allowTf32 && gemm.dtype == DType::F32
                                      ? CUBLAS_COMPUTE_32F_FAST_TF32
                                      : CUBLAS_COMPUTE_32F;
    cublasLtMatmulDesc_t made = nullptr;
    check(blas().cublasLtMatmulDescCreate(&made, compute,
                                          isDouble ? CUDA_R_64F : CUDA_R_32F),
          what);
    description = Description(made);
    set(CUBLASLT_MATMUL_DESC_TRANSA, operation(layout.first));
    set(CUBLASLT_MATMUL_DESC_TRANSB, operation(layout.second));
    first = store(layout.first, gemm.dtype);
    second = store(layout.second, gemm.dtype);
    result = store(layout.result, gemm.resultType());
  }

  // Chooses an algorithm of cuBLASLt; returns false if there is none.
  bool choose(const Gemm &gemm, const Fused &fused) {
    fuse(gemm, fused);
    cublasLtMatmulPreference_t made = nullptr;
    check(blas().cublasLtMatmulPreferenceCreate(&made), what);
    Preference preference(made);
    auto prefer = [&](cublasLtMatmulPreferenceAttributes_t key, auto value) {
      check(blas().cublasLtMatmulPreferenceSetAttribute(preference.get(), key,
                                                        &value, sizeof(value)),
            what);
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(workspaceBytes));
    // Only algorithms that keep partial sums in f32 or f64 are allowed. By
    // default cuBLASLt may round partial sums to the type of the result.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    const void *left = layout.isSwapped ? buffers.b : buffers.a;
    const void *right = layout.isSwapped ? buffers.a : buffers.b;
    auto &at = layout.offsets;
    auto ofA = [](const BlasLayout::Offsets &x) { return x.a; };
    auto ofB = [](const BlasLayout::Offsets &x) { return x.b; };
    auto ofC = [](const BlasLayout::Offsets &x) { return x.c; };
    auto alignment = [&](const void *base, const StoredMatrix &matrix,
                         int64_t size, auto offset) {
      int64_t common = std::gcd(reinterpret_cast<int64_t>(base), bestAlignment);
      common = std::gcd(common, matrix.stride * size);
      for (const BlasLayout::Offsets &one : at)
        common = std::gcd(common, offset(one) * size);
      return uint32_t(common);
    };
    bool swaps = layout.isSwapped;
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
           swaps ? alignment(left, layout.first, size, ofB)
                 : alignment(left, layout.first, size, ofA));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
           swaps ? alignment(right, layout.second, size, ofA)
                 : alignment(right, layout.second, size, ofB));
    uint32_t target = alignment(buffers.c, layout.result, resultSize, ofC);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, target);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, target);
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    cublasStatus_t status = blas().cublasLtMatmulAlgoGetHeuristic(
        handle, description.get(), first.get(), second.get(), result.get(),
        result.get(), preference.get(), 1, &found, &count);
    // NOT_SUPPORTED and INVALID_VALUE mean that cuBLASLt has no algorithm;
    // other statuses are errors.
    if (status == CUBLAS_STATUS_NOT_SUPPORTED ||
        status == CUBLAS_STATUS_INVALID_VALUE)
      return false;
    check(status, what);
    if (count == 0 || found.state != CUBLAS_STATUS_SUCCESS)
      return false;
    algorithm = found.algo;
    return true;
  }

  void enqueue(CUstream stream) {
    float narrowAlpha = float(alpha), narrowBeta = float(beta);
    const void *scale = isDouble ? static_cast<const void *>(&alpha)
                                 : static_cast<const void *>(&narrowAlpha);
    const void *kept = isDouble ? static_cast<const void *>(&beta)
                                : static_cast<const void *>(&narrowBeta);
    for (const BlasLayout::Offsets &at : layout.offsets) {
      const char *a = static_cast<const char *>(buffers.a) + at.a * size;
      const char *b = static_cast<const char *>(buffers.b) + at.b * size;
      char *c = static_cast<char *>(buffers.c) + at.c * resultSize;
      if (aux && layout.offsets.size() > 1)
        set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux + at.c * resultSize);
      check(blas().cublasLtMatmul(
                handle, description.get(), scale, layout.isSwapped ? b : a,
                first.get(), layout.isSwapped ? a : b, second.get(), kept, c,
                result.get(), c, result.get(), &algorithm, buffers.workspace,
                size_t(workspaceBytes), reinterpret_cast<cudaStream_t>(stream)),
            what);
    }
  }

private:
  static int32_t operation(const StoredMatrix &matrix) {
    return matrix.isTransposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  }

  template <class T> void set(cublasLtMatmulDescAttributes_t key, T value) {
    check(blas().cublasLtMatmulDescSetAttribute(description.get(), key, &value,
                                                sizeof(value)),
          what);
  }

  Layout store(const StoredMatrix &matrix, DType type) {
    cublasLtMatrixLayout_t made = nullptr;
    check(blas().cublasLtMatrixLayoutCreate(
              &made, typeOf(type), uint64_t(matrix.rows),
              uint64_t(matrix.columns), matrix.leading),
          what);
    Layout out(made);
    auto batch = static_cast<int32_t>(layout.batch);
    auto setLayout = [&](cublasLtMatrixLayoutAttribute_t key, auto value) {
      check(blas().cublasLtMatrixLayoutSetAttribute(out.get(), key, &value,
                                                    sizeof(value)),
            what);
    };
    setLayout(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batch);
    setLayout(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix.stride);
    return out;
  }

  void fuse(const Gemm &gemm, const Fused &fused) {
    int32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    if (fused.activation)
      epilogue = gemm.activation == Activation::Relu ? CUBLASLT_EPILOGUE_RELU
                 : gemm.derivativeAt.present()       ? CUBLASLT_EPILOGUE_DGELU
                 : fused.aux ? CUBLASLT_EPILOGUE_GELU_AUX
                             : CUBLASLT_EPILOGUE_GELU;
    if (fused.sums)
      epilogue = sumsFirst(gemm, layout) ? CUBLASLT_EPILOGUE_BGRADA
                                         : CUBLASLT_EPILOGUE_BGRADB;
    if (fused.bias)
      epilogue = (epilogue == CUBLASLT_EPILOGUE_DEFAULT ? 0 : epilogue) |
                 CUBLASLT_EPILOGUE_BIAS;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    if (fused.bias)
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, buffers.bias);
    if (fused.sums)
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, buffers.sums);
    aux = fused.aux ? auxOf(gemm, buffers) : nullptr;
    if (aux) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, layout.result.leading);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, layout.result.stride);
    }
  }

  const cublasLtHandle_t handle;
  const BlasLayout layout;
  const GemmBuffers buffers;
  const std::string what;
  const int64_t size, resultSize, workspaceBytes;
  const bool isDouble;
  const double alpha, beta;
  Description description;
  Layout first, second, result;
  cublasLtMatmulAlgo_t algorithm{};
  const char *aux = nullptr; // the activation's operand
};

bool isAligned(const void *at, int64_t alignment) {
  return reinterpret_cast<uintptr_t>(at) % alignment == 0;
}

// Returns whether cuBLASLt can compute Gemm::sums (the row sums of A, or the
// column sums of B) together with the product. The operand must be contiguous
// along the dimension that is not summed, as in the gradient of a weight. The
// sums get the type of the result. cuBLASLt's documentation does not say
// whether alpha scales these sums, or whether their terms are rounded to TF32.
// So this is not used if alpha is not 1, or with TF32.
bool canSum(const Gemm &gemm, const GemmBuffers &buffers,
            const BlasLayout &layout, bool allowTf32) {
  bool isOuter = sumsFirst(gemm, layout) ? !layout.first.isTransposed
                                         : layout.second.isTransposed;
  return gemm.sums.present() && isOuter && gemm.alpha == 1 &&
         gemm.dtype != DType::F64 && !(allowTf32 && gemm.dtype == DType::F32) &&
         isAligned(buffers.sums, epilogueAlignment);
}

// Returns the epilogues to try with cuBLASLt: first the one that fuses most,
// last the one that fuses nothing, which always works.
std::vector<Fused> choices(const Gemm &gemm, const GemmBuffers &buffers,
                           const BlasLayout &layout, bool allowTf32) {
  if (canSum(gemm, buffers, layout, allowTf32))
    return {{.sums = true}, {}};
  bool canFuse = gemm.dtype != DType::F64 && !gemm.wideResult;
  bool hasBias = gemm.bias.present(), keeps = gemm.preActivation.present();
  Fused most;
  most.bias = canFuse && hasBias && layout.isSwapped &&
              isAligned(buffers.bias, epilogueAlignment);
  // With a ReLU, cuBLASLt stores a bit mask and not the activation's operand,
  // so a ReLU whose operand is needed is not fused.
  bool isGelu = gemm.activation == Activation::GeluTanh;
  most.activation = canFuse && most.bias == hasBias &&
                    (isGelu || (gemm.activation == Activation::Relu && !keeps));
  const char *aux = auxOf(gemm, buffers);
  if (most.activation && aux) {
    most.aux = true;
    int64_t all = std::gcd(layout.result.leading, layout.result.stride);
    for (const BlasLayout::Offsets &at : layout.offsets)
      all = std::gcd(all, at.c);
    if (all % 8 != 0 || !isAligned(aux, epilogueAlignment))
      most.activation = most.aux = false;
  }
  std::vector<Fused> out;
  if (most.activation)
    out.push_back(most);
  if (most.bias)
    out.push_back({.bias = true});
  out.push_back({});
  return out;
}

// Computes the product by a kernel of the runtime.
Enqueue makeOwn(Kernels &kernels, const Gemm &gemm,
                const GemmBuffers &buffers) {
  Gemm product = gemm;
  Enqueue rest = makeOperandSums(kernels, gemm, buffers);
  if (gemm.derivativeAt.present()) {
    product.activation = Activation::None;
    rest = makeEpilogue(kernels, gemm, buffers, false);
  }
  return
      [run = makePlainGemm(kernels, product, buffers), rest](CUstream stream) {
        run(stream);
        rest(stream);
      };
}
} // namespace

Blas &Blas::of(Device &device) {
  static std::mutex mutex;
  static std::map<int, std::unique_ptr<Blas>> all;
  std::lock_guard lock(mutex);
  std::unique_ptr<Blas> &found = all[device.ordinal];
  if (!found) {
    device.use();
    cublasLtHandle_t handle = nullptr;
    check(blas().cublasLtCreate(&handle), "preparing cuBLASLt");
    found.reset(new Blas(handle));
  }
  return *found;
}

Enqueue cuda::makeGemm(Device &device, const Gemm &gemm,
                       const GemmBuffers &buffers, int64_t workspaceBytes,
                       bool allowTf32, bool *isOwn) {
  if (isOwn)
    *isOwn = false;
  std::string error = checkGemm(gemm);
  if (!error.empty())
    fail(CLEAVE_UNSUPPORTED, error);
  Kernels &kernels = Kernels::of(device);
  bool isEmpty =
      gemm.m == 0 || gemm.n == 0 ||
      std::find(gemm.batch.begin(), gemm.batch.end(), 0) != gemm.batch.end();
  if (isEmpty)
    return makeOperandSums(kernels, gemm, buffers);
  std::optional<BlasLayout> layout;
  if (gemm.k > 0)
    layout = layoutOf(gemm);
  if (!layout)
    return makeOwn(kernels, gemm, buffers);
  // cuBLASLt requires scratch memory that begins at a multiple of 256.
  GemmBuffers aligned = buffers;
  auto given = reinterpret_cast<uintptr_t>(buffers.workspace);
  auto skipped = static_cast<int64_t>(-given & 255);
  workspaceBytes = std::max<int64_t>(0, workspaceBytes - skipped);
  aligned.workspace = workspaceBytes && given
                          ? static_cast<char *>(buffers.workspace) + skipped
                          : nullptr;
  if (!aligned.workspace)
    workspaceBytes = 0;
  auto product = std::make_shared<BlasProduct>(device, gemm, aligned, *layout,
                                               workspaceBytes, allowTf32);
  for (const Fused &fused : choices(gemm, buffers, *layout, allowTf32)) {
    if (!product->choose(gemm, fused))
      continue;
    Enqueue rest = [](CUstream) {};
    if (gemm.sums.present() && !fused.sums)
      rest = makeOperandSums(kernels, gemm, buffers);
    else if (!fused.activation)
      rest = makeEpilogue(kernels, gemm, buffers, !fused.bias);
    return [product, rest](CUstream stream) {
      product->enqueue(stream);
      rest(stream);
    };
  }
  if (isOwn)
    *isOwn = true;
  return makeOwn(kernels, gemm, buffers);
}
