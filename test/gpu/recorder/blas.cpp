// The simulated cuBLASLt: descriptors, and products that run as loops on the
// host.

#include "product.h"
#include "queue.h"

#include <cstring>

using namespace recorder;

namespace {
struct Preference {
  uint64_t workspace = 0;
  // The addresses of A, B, C and D are multiples of these numbers of bytes; 256
  // if the caller sets nothing else.
  uint32_t alignment[4] = {256, 256, 256, 256};
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
};

// The content of a cublasLtMatmulAlgo_t in the simulated library.
struct Algorithm {
  uint64_t mark, workspace, alignment[4];
  uint64_t roundsParts;
};
constexpr uint64_t algorithmMark = 0x636c65617665;
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

template <class To> bool put(To &to, const void *from, size_t size) {
  if (size != sizeof(To))
    return false;
  std::memcpy(&to, from, sizeof(To));
  return true;
}
cublasStatus_t statusOf(bool isGood) {
  return isGood ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

template <class To> To *made(void *handle) { return static_cast<To *>(handle); }

Product describe(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                 cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                 cublasLtMatrixLayout_t d) {
  Product product = *made<Product>(desc);
  product.a = *made<Layout>(a);
  product.b = *made<Layout>(b);
  product.c = *made<Layout>(c);
  product.d = *made<Layout>(d);
  return product;
}

cublasStatus_t refuse(const char *fault) {
  std::fprintf(stderr, "recorder: a product is refused: %s\n", fault);
  return CUBLAS_STATUS_NOT_SUPPORTED;
}
} // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out) {
  if (!currentDevice)
    return CUBLAS_STATUS_NOT_INITIALIZED;
  *out = reinterpret_cast<cublasLtHandle_t>(currentDevice);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) {
  return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
  case CUBLAS_STATUS_SUCCESS:
    return "CUBLAS_STATUS_SUCCESS";
  case CUBLAS_STATUS_INVALID_VALUE:
    return "CUBLAS_STATUS_INVALID_VALUE";
  case CUBLAS_STATUS_NOT_SUPPORTED:
    return "CUBLAS_STATUS_NOT_SUPPORTED";
  default:
    return "another status of cuBLASLt";
  }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out,
                                        cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  auto *product = new Product;
  product->compute = compute;
  product->scale = scale;
  *out = reinterpret_cast<cublasLtMatmulDesc_t>(product);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete made<Product>(desc);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                               cublasLtMatmulDescAttributes_t attribute,
                               const void *value, size_t size) {
  auto *product = made<Product>(desc);
  int32_t number = 0;
  switch (attribute) {
  case CUBLASLT_MATMUL_DESC_TRANSA:
  case CUBLASLT_MATMUL_DESC_TRANSB:
    if (!put(number, value, size) ||
        (number != CUBLAS_OP_N && number != CUBLAS_OP_T))
      return CUBLAS_STATUS_INVALID_VALUE;
    (attribute == CUBLASLT_MATMUL_DESC_TRANSA ? product->transposeA
                                              : product->transposeB) =
        number == CUBLAS_OP_T;
    return CUBLAS_STATUS_SUCCESS;
  case CUBLASLT_MATMUL_DESC_EPILOGUE:
    return statusOf(put(product->epilogue, value, size));
  case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
    return statusOf(put(product->bias, value, size));
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
    return statusOf(put(product->aux, value, size));
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
    return statusOf(put(product->auxLeading, value, size));
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
    return statusOf(put(product->auxStride, value, size));
  default:
    return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out,
                                          cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
  auto *layout = new Layout;
  layout->type = type;
  layout->rows = rows;
  layout->columns = columns;
  layout->leading = leading;
  *out = reinterpret_cast<cublasLtMatrixLayout_t>(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete made<Layout>(layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                 cublasLtMatrixLayoutAttribute_t attribute,
                                 const void *value, size_t size) {
  auto *layout = made<Layout>(handle);
  switch (attribute) {
  case CUBLASLT_MATRIX_LAYOUT_ORDER:
    return statusOf(put(layout->order, value, size));
  case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
    return statusOf(put(layout->batch, value, size));
  case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
    return statusOf(put(layout->stride, value, size));
  default:
    return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
  *out = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t
cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete made<Preference>(preference);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t handle,
    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
    size_t size) {
  auto *preference = made<Preference>(handle);
  switch (attribute) {
  case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
    return statusOf(put(preference->workspace, value, size));
  case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
    return statusOf(put(preference->reductions, value, size));
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    return statusOf(put(preference->alignment[0], value, size));
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    return statusOf(put(preference->alignment[1], value, size));
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    return statusOf(put(preference->alignment[2], value, size));
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
    return statusOf(put(preference->alignment[3], value, size));
  default:
    return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
    cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
    int requested, cublasLtMatmulHeuristicResult_t results[], int *returned) {
  *returned = 0;
  if (requested < 1)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (const char *fault = describe(desc, a, b, c, d).findFault())
    return refuse(fault);
  const auto *wanted = made<Preference>(preference);
  // The simulated algorithm has the lowest precision that the caller allows: it
  // adds partial sums in the type of the result.
  constexpr uint32_t inType =
      CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  Algorithm algorithm{
      algorithmMark, wanted->workspace, {}, (wanted->reductions & inType) != 0};
  std::copy_n(wanted->alignment, 4, algorithm.alignment);
  results[0] = {};
  std::memcpy(&results[0].algo, &algorithm, sizeof(algorithm));
  results[0].workspaceSize = wanted->workspace;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *returned = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
               const void *alpha, const void *a, cublasLtMatrixLayout_t aLayout,
               const void *b, cublasLtMatrixLayout_t bLayout, const void *beta,
               const void *c, cublasLtMatrixLayout_t cLayout, void *d,
               cublasLtMatrixLayout_t dLayout, const cublasLtMatmulAlgo_t *algo,
               void *workspace, size_t workspaceBytes, cudaStream_t on) {
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  Stream *stream = all.stream(reinterpret_cast<CUstream>(on));
  if (!stream)
    return CUBLAS_STATUS_INVALID_VALUE;
  auto product = std::make_shared<Product>(
      describe(desc, aLayout, bLayout, cLayout, dLayout));
  if (const char *fault = product->findFault())
    return refuse(fault);
  auto scalar = [&](const void *at) {
    return product->scale == CUDA_R_64F
               ? *static_cast<const double *>(at)
               : double(*static_cast<const float *>(at));
  };
  product->alpha = scalar(alpha);
  product->beta = scalar(beta);
  product->aAt = static_cast<const char *>(a);
  product->bAt = static_cast<const char *>(b);
  product->cAt = static_cast<const char *>(c);
  product->dAt = static_cast<char *>(d);
  if (c == d && product->c.leading != product->d.leading)
    return refuse("C is D and is placed otherwise");
  const char *epilogue = product->has(128) ? product->aux : product->dAt;
  bool hasBias = product->has(CUBLASLT_EPILOGUE_BIAS) || product->sumsA() ||
                 product->sumsB();
  if (!epilogue || (hasBias && !product->bias))
    return refuse("an epilogue's buffer is missing");

  Operation operation;
  operation.who = all.name(*stream, "product");
  operation.accesses = product->accesses();
  if (algo) {
    Algorithm chosen;
    std::memcpy(&chosen, algo, sizeof(chosen));
    const void *pointers[] = {a, b, c, d};
    for (int i = 0; i < 4; ++i)
      if (chosen.mark != algorithmMark ||
          reinterpret_cast<uintptr_t>(pointers[i]) % chosen.alignment[i])
        return refuse("an operand is not where the algorithm needs it");
    product->roundsParts = chosen.roundsParts;
    if (chosen.workspace > workspaceBytes)
      return refuse("the algorithm needs more workspace");
    if (chosen.workspace) {
      if (reinterpret_cast<uintptr_t>(workspace) % 256)
        return refuse("the workspace is not at a multiple of 16");
      operation.accesses.push_back(
          {static_cast<char *>(workspace), int64_t(chosen.workspace), true});
    }
  }
  if (reinterpret_cast<Device *>(handle)->number != stream->device)
    all.report.error(operation.who->text() +
                     ": the handle is of another device than the stream");
  ++all.report.totals.products;
  operation.run = [product] { product->run(); };
  all.enqueue(*stream, std::move(operation));
  return CUBLAS_STATUS_SUCCESS;
}
