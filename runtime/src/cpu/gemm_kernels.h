// One tile of a matrix product with its epilogue. Included by isa_*.cpp.

// The depth (along k) of packed blocks, chosen so that the blocks of A, B and C
// fit into the second-level cache.
template <class T> constexpr int64_t gemmDepth = 1024 / int64_t(sizeof(T));

template <class S, class T = Compute<S>> int64_t gemmScratch() {
  return gemmTileRows * gemmDepth<T> + gemmTileColumns * gemmDepth<T> +
         gemmTileRows * gemmTileColumns;
}

// Computes a row of C from its accumulators: applies alpha, accumulation, bias
// and activation as program::Gemm defines. E is the element type of C.
template <class E, class S, class T = Compute<S>>
void gemmRow(const GemmProblem<S> &p, const T *acc, E *c, S *pre, const S *bias,
             int64_t n) {
  constexpr int lanes = Lanes<T>::count;
  int64_t j = 0;
  if (p.cCol == 1)
    for (; j + lanes <= n; j += lanes) {
      Vec<T> x = load<T>(acc + j) * p.alpha;
      if (bias)
        x += load<T>(bias + j);
      if (p.accumulate)
        x += load<T>(c + j);
      if (pre)
        store<T>(pre + j, x);
      store<T>(c + j, activateVector<T>(p.activation, x));
    }
  for (; j < n; ++j) {
    T x = acc[j] * p.alpha;
    if (bias)
      x += T(bias[j]);
    if (p.accumulate)
      x += T(c[j * p.cCol]);
    if (pre)
      pre[j * p.cCol] = x;
    c[j * p.cCol] = activateVector<T>(p.activation, splat<T>(x))[0];
  }
}

template <class S, class T = Compute<S>>
void gemmEpilogue(const GemmProblem<S> &p, const T *acc, int64_t row,
                  int64_t n0, int64_t n1) {
  int64_t at = (p.cRowAt ? p.cRowAt[row] : row * p.cRow) + n0 * p.cCol;
  S *pre =
      p.preActivation ? p.preActivation + row * p.cRow + n0 * p.cCol : nullptr;
  const S *bias = p.bias ? p.bias + n0 : nullptr;
  if (p.wideC)
    gemmRow(p, acc, p.wideC + at, pre, bias, n1 - n0);
  else
    gemmRow(p, acc, p.c + at, pre, bias, n1 - n0);
}

template <class S, class T = Compute<S>>
void gemmTile(const GemmProblem<S> &p, int64_t m0, int64_t m1, int64_t n0,
              int64_t n1, T *scratch) {
  T *packedA = scratch;
  T *packedB = packedA + gemmTileRows * gemmDepth<T>;
  T *acc = packedB + gemmTileColumns * gemmDepth<T>;
  int64_t m = m1 - m0, n = n1 - n0;
  if (p.k == 0)
    for (int64_t i = 0; i < gemmTileRows * gemmTileColumns; ++i)
      acc[i] = T(0);
  for (int64_t k0 = 0; k0 < p.k; k0 += gemmDepth<T>) {
    int64_t k = p.k - k0 < gemmDepth<T> ? p.k - k0 : gemmDepth<T>;
    if (p.aRowAt)
      packRowsOfA<T>(p.a + k0 * p.aCol, p.aRowAt + m0, p.aCol, m, k, packedA);
    else if (p.aColAt)
      packColumnsOfA<T>(p.a + m0 * p.aRow, p.aRow, p.aColAt + k0, m, k,
                        packedA);
    else
      packA<T>(p.a + m0 * p.aRow + k0 * p.aCol, p.aRow, p.aCol, m, k, T(1),
               packedA);
    if (p.bRowAt)
      packRowsOfB<T>(p.b + n0 * p.bCol, p.bRowAt + k0, p.bCol, k, n, packedB);
    else
      packB<T>(p.b + k0 * p.bRow + n0 * p.bCol, p.bRow, p.bCol, k, n, packedB);
    tileGemm<T>(m, n, k, packedA, packedB, acc, gemmTileColumns, k0 != 0);
  }
  for (int64_t i = 0; i < m; ++i)
    gemmEpilogue(p, acc + i * gemmTileColumns, m0 + i, n0, n1);
}
