// Functions that the backward kernels of attention share.
#ifndef CLEAVE_RUNTIME_CUDA_KERNELS_ATTENTION_GRADIENT_H
#define CLEAVE_RUNTIME_CUDA_KERNELS_ATTENTION_GRADIENT_H

#include "attention_dropout.h"
#include "attention_tiles.h"

namespace cleave::cuda::device {

/// Loads lse and delta of query i of a tile. If the query sees no key, all its
/// scores are -inf, and 0 is stored for lse.
template <class T, class Shared>
CLEAVE_DEVICE void loadQueries(const AttentionArguments &x, Shared &shared,
                               int i, int64_t b, int64_t n, int64_t g,
                               int64_t q) {
  shared.queries[i] = queryAt(x, b, q);
  T lse = 0, delta = 0;
  if (q < x.qLen) {
    const int64_t *strides = x.lse.strides;
    lse = static_cast<const T *>(x.lse.data)[b * strides[0] + q * strides[1] +
                                             n * strides[2] + g * strides[3]];
    if (lse == minusInfinity<T>())
      lse = 0;
    delta =
        static_cast<const T *>(x.delta)[((b * x.n + n) * x.g + g) * x.qLen + q];
  }
  shared.lse[i] = lse, shared.delta[i] = delta;
}

/// Computes the softmax weight of a pair of a query and a key, and the gradient
/// of their score. `product` is the dot product q k^T of the pair, `dP` is dO
/// v^T. With dropout, `weight` is the weight after dropout, by which the value
/// v is multiplied.
template <bool drops, class T>
CLEAVE_DEVICE void gradientOf(const AttentionArguments &x, bool isSeen,
                              bool isKept, int64_t biasAt, T lse, T delta,
                              T product, T dP, T &weight, T &gradient) {
  T slope;
  weight = isSeen ? expOf(scoreOf(x, product, biasAt, slope) - lse) : T(0);
  if constexpr (drops)
    dP = isKept ? dP * T(x.keptScale) : T(0);
  gradient = weight == 0 ? T(0) : weight * (dP - delta) * slope * T(x.scale);
  if constexpr (drops)
    weight = isKept ? weight * T(x.keptScale) : T(0);
}

} // namespace cleave::cuda::device

#endif // CLEAVE_RUNTIME_CUDA_KERNELS_ATTENTION_GRADIENT_H
