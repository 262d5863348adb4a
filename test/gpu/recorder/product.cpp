// A matrix product with the arguments that cuBLASLt takes.

#include "product.h"

#include "numbers.h"

#include <cmath>
#include <cstdlib>

using namespace recorder;

namespace {
constexpr int32_t reluBit = CUBLASLT_EPILOGUE_RELU;
constexpr int32_t biasBit = CUBLASLT_EPILOGUE_BIAS;
constexpr int32_t geluBit = CUBLASLT_EPILOGUE_GELU;
constexpr int32_t auxBit = 128;
constexpr int32_t slopeOfGelu = CUBLASLT_EPILOGUE_DGELU;

const char *findFault(const Layout &layout) {
  if (layout.rows == 0 || layout.columns == 0 || layout.batch < 1)
    return "a matrix is empty";
  if (layout.order != CUBLASLT_ORDER_COL && layout.order != CUBLASLT_ORDER_ROW)
    return "the recorder has no such order of a matrix";
  uint64_t line =
      layout.order == CUBLASLT_ORDER_COL ? layout.rows : layout.columns;
  return layout.leading < int64_t(line)
             ? "a leading dimension is shorter than a row or column"
             : nullptr;
}

template <class T> T load(const char *at, cudaDataType type, int64_t i) {
  switch (type) {
  case CUDA_R_64F:
    return T(reinterpret_cast<const double *>(at)[i]);
  case CUDA_R_16BF:
    return T(widen(reinterpret_cast<const uint16_t *>(at)[i]));
  default:
    return T(reinterpret_cast<const float *>(at)[i]);
  }
}

// Returns an element of an operand as the matrix units read it, that is,
// rounded to TF32 if the product uses TF32.
template <class T>
T operand(const Product &p, const char *at, cudaDataType type, int64_t i) {
  T x = load<T>(at, type, i);
  return p.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? T(toTf32(float(x))) : x;
}

template <class T> void store(char *at, cudaDataType type, int64_t i, T x) {
  switch (type) {
  case CUDA_R_64F:
    reinterpret_cast<double *>(at)[i] = double(x);
    break;
  case CUDA_R_16BF:
    reinterpret_cast<uint16_t *>(at)[i] = narrow(float(x));
    break;
  default:
    reinterpret_cast<float *>(at)[i] = float(x);
  }
}

template <class T> T rounded(T x, cudaDataType type) {
  alignas(double) char at[sizeof(double)];
  store(at, type, 0, x);
  return load<T>(at, type, 0);
}

// cuBLASLt's GELU is the approximation by tanh.
template <class T> T activated(T x, int32_t epilogue) {
  if (epilogue & geluBit)
    return T(0.5) * x *
           (1 +
            std::tanh(T(0.7978845608028654) * (x + T(0.044715) * x * x * x)));
  if (epilogue & reluBit)
    return x > 0 ? x : T(0);
  return x;
}

// The derivative of the tanh approximation of GELU.
template <class T> T slope(T x) {
  T root = T(0.7978845608028654);
  T t = std::tanh(root * (x + T(0.044715) * x * x * x));
  return T(0.5) * (1 + t) +
         T(0.5) * x * (1 - t * t) * root * (1 + T(0.134145) * x * x);
}

// Computes the gradient of a bias by summing operand A or B. It has the type of
// D.
template <class T> void sumOperand(const Product &p) {
  bool isA = p.sumsA();
  const Layout &layout = isA ? p.a : p.b;
  bool isTransposed = isA ? p.transposeA : p.transposeB;
  int64_t count = int64_t(isA ? p.d.rows : p.d.columns);
  for (int64_t i = 0; i < count; ++i) {
    T sum = 0;
    for (int64_t l = 0; l < p.depth(); ++l)
      sum +=
          operand<T>(p, isA ? p.aAt : p.bAt, layout.type,
                     isA != isTransposed ? layout.at(i, l) : layout.at(l, i));
    store(p.bias, p.d.type, i, sum);
  }
}

template <class T> void compute(const Product &p) {
  int64_t m = int64_t(p.d.rows), n = int64_t(p.d.columns), k = p.depth();
  // `rows` is A with the summed dimension first, whether A is transposed or
  // not.
  std::vector<T> rows(k * m), column(k), sums(m);
  for (int64_t batch = 0; batch < p.d.batch; ++batch) {
    int64_t aBase = batch * p.a.stride, bBase = batch * p.b.stride;
    for (int64_t l = 0; l < k; ++l)
      for (int64_t i = 0; i < m; ++i)
        rows[l * m + i] =
            operand<T>(p, p.aAt, p.a.type,
                       aBase + (p.transposeA ? p.a.at(l, i) : p.a.at(i, l)));
    for (int64_t j = 0; j < n; ++j) {
      std::fill(sums.begin(), sums.end(), T(0));
      for (int64_t l = 0; l < k; ++l) {
        if (p.roundsParts && l == k / 2)
          for (T &sum : sums)
            sum = rounded(sum, p.d.type);
        T b = operand<T>(p, p.bAt, p.b.type,
                         bBase + (p.transposeB ? p.b.at(j, l) : p.b.at(l, j)));
        const T *row = &rows[l * m];
        for (int64_t i = 0; i < m; ++i)
          sums[i] += row[i] * b;
      }
      for (int64_t i = 0; i < m; ++i) {
        T x = T(p.alpha) * sums[i];
        if (p.beta != 0)
          x += T(p.beta) *
               load<T>(p.cAt, p.c.type, batch * p.c.stride + p.c.at(i, j));
        if (p.has(biasBit))
          x += load<T>(p.bias, p.d.type, i);
        int64_t at = batch * p.auxStride + j * p.auxLeading + i;
        if (p.epilogue == slopeOfGelu)
          x *= slope(load<T>(p.aux, p.d.type, at));
        else if (p.has(auxBit))
          store(p.aux, p.d.type, at, x);
        store(p.dAt, p.d.type, batch * p.d.stride + p.d.at(i, j),
              activated(x, p.epilogue));
      }
    }
  }
  if (p.sumsA() || p.sumsB())
    sumOperand<T>(p);
}
} // namespace

const char *Product::findFault() const {
  for (const Layout *layout : {&a, &b, &c, &d})
    if (const char *fault = ::findFault(*layout))
      return fault;
  uint64_t m = transposeA ? a.columns : a.rows,
           n = transposeB ? b.rows : b.columns,
           k = transposeB ? b.columns : b.rows;
  if (int64_t(k) != depth() || m != d.rows || n != d.columns)
    return "sizes of the matrices do not fit";
  if (c.rows != d.rows || c.columns != d.columns || c.order != d.order ||
      c.type != d.type)
    return "C and D differ";
  for (const Layout *layout : {&a, &b, &c})
    if (layout->batch != d.batch)
      return "batch counts differ";
  if (d.batch > 1 &&
      d.stride < int64_t(d.order == CUBLASLT_ORDER_COL ? d.rows : d.columns))
    return "results of a batch overlap";
  bool isDouble = compute == CUBLAS_COMPUTE_64F;
  if (isDouble) {
    if (a.type != CUDA_R_64F || b.type != CUDA_R_64F || d.type != CUDA_R_64F ||
        scale != CUDA_R_64F)
      return "sums of f64 need operands and scale of f64";
    if (epilogue != CUBLASLT_EPILOGUE_DEFAULT)
      return "f64 has no epilogue";
  } else if (compute == CUBLAS_COMPUTE_32F ||
             compute == CUBLAS_COMPUTE_32F_FAST_TF32) {
    bool isFloat = a.type == CUDA_R_32F && d.type == CUDA_R_32F;
    bool isHalf = a.type == CUDA_R_16BF &&
                  (d.type == CUDA_R_16BF || d.type == CUDA_R_32F) &&
                  compute == CUBLAS_COMPUTE_32F;
    if (a.type != b.type || scale != CUDA_R_32F || !(isFloat || isHalf))
      return "no such combination of types";
  } else {
    return "the recorder has no such compute type";
  }
  int32_t known = 1 | reluBit | biasBit | geluBit | auxBit;
  bool isForward = !(epilogue & ~known) && !(has(reluBit) && has(auxBit));
  bool isGradient = epilogue == slopeOfGelu || sumsA() || sumsB();
  if (!isForward && !isGradient)
    return "the recorder has no such epilogue";
  // With CLEAVE_RECORDER_REFUSES_GRADIENTS, behaves as if cuBLASLt had no
  // algorithm for the epilogues that compute gradients.
  if (isGradient && std::getenv("CLEAVE_RECORDER_REFUSES_GRADIENTS"))
    return "no algorithm has an epilogue of gradients";
  if (sumsA() || sumsB()) {
    if (d.batch > 1)
      return "the recorder has no gradient of a bias for a batch";
    if (sumsA() ? transposeA : !transposeB)
      return "the recorder has gradients of biases only of operands whose "
             "outer dimension is summed";
    if (compute != CUBLAS_COMPUTE_32F)
      return "the recorder has no gradient of a bias in tf32";
  }
  if (epilogue != CUBLASLT_EPILOGUE_DEFAULT && d.order != CUBLASLT_ORDER_COL)
    return "epilogues need columns that are contiguous";
  if (has(auxBit)) {
    if (auxLeading % 8 || auxLeading < int64_t(d.rows))
      return "the auxiliary buffer's leading dimension is no multiple of 8 or "
             "less than the rows";
    if (d.batch > 1 && auxStride % 8)
      return "the auxiliary buffer's stride is no multiple of 8";
  }
  return nullptr;
}

std::vector<Access> Product::accesses() const {
  auto read = [](const char *at, int64_t count, cudaDataType type) {
    return Access{const_cast<char *>(at), count * sizeOf(type), false};
  };
  std::vector<Access> out = {read(aAt, a.span(), a.type),
                             read(bAt, b.span(), b.type)};
  if (beta != 0)
    out.push_back(read(cAt, c.span(), c.type));
  if (has(biasBit))
    out.push_back(read(bias, int64_t(d.rows), d.type));
  if (sumsA() || sumsB())
    out.push_back(
        {bias, int64_t(sumsA() ? d.rows : d.columns) * sizeOf(d.type), true});
  if (has(auxBit))
    out.push_back({aux,
                   ((d.batch - 1) * auxStride +
                    (int64_t(d.columns) - 1) * auxLeading + int64_t(d.rows)) *
                       sizeOf(d.type),
                   epilogue != slopeOfGelu});
  out.push_back({dAt, d.span() * sizeOf(d.type), true});
  return out;
}

void Product::run() const {
  if (compute == CUBLAS_COMPUTE_64F)
    ::compute<double>(*this);
  else
    ::compute<float>(*this);
}
