// Small matrix products in packed blocks, the core of gemm and attention.
// Included only by isa_*.cpp, after vector_math.h.
//
// A packed A consists of panels of `rows` rows, each stored as [k][rows]; a
// packed B consists of panels of `columns` columns, each stored as
// [k][columns]. Both are padded with zeros to whole panels, so the micro-kernel
// has no edge cases. C is a dense scratch array that has room for whole panels.

template <class T> struct Block {
  static constexpr int lanes = Lanes<T>::count;
  static constexpr int rows = CLEAVE_BLOCK_ROWS, vectors = 2;
  static constexpr int columns = vectors * lanes;
};

inline int64_t roundUp(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

template <class T, class S>
void packA(const S *src, int64_t rowStride, int64_t colStride, int64_t m,
           int64_t k, T scale, T *dst) {
  constexpr int rows = Block<T>::rows;
  for (int64_t i = 0; i < m; i += rows, dst += rows * k) {
    int64_t height = m - i < rows ? m - i : rows;
    if (height < rows)
      for (int64_t x = 0; x < rows * k; ++x)
        dst[x] = T(0);
    const S *from = src + i * rowStride;
    if (height == rows) {
      for (int64_t x = 0; x < k; ++x)
#pragma clang loop unroll(full)
        for (int r = 0; r < rows; ++r)
          dst[x * rows + r] = scale * T(from[r * rowStride + x * colStride]);
    } else if (colStride == 1) {
      for (int64_t r = 0; r < height; ++r)
        for (int64_t x = 0; x < k; ++x)
          dst[x * rows + r] = scale * T(from[r * rowStride + x]);
    } else {
      for (int64_t x = 0; x < k; ++x)
        for (int64_t r = 0; r < height; ++r)
          dst[x * rows + r] = scale * T(from[r * rowStride + x * colStride]);
    }
  }
}

template <class T, class S>
void packB(const S *src, int64_t rowStride, int64_t colStride, int64_t k,
           int64_t n, T *dst) {
  constexpr int columns = Block<T>::columns;
  for (int64_t j = 0; j < n; j += columns, dst += columns * k) {
    int64_t width = n - j < columns ? n - j : columns;
    const S *from = src + j * colStride;
    if (width == columns && colStride == 1) {
      for (int64_t x = 0; x < k; ++x)
        for (int v = 0; v < columns; v += Lanes<T>::count)
          store<T>(dst + x * columns + v, load<T>(from + x * rowStride + v));
      continue;
    }
    if (width < columns)
      for (int64_t x = 0; x < columns * k; ++x)
        dst[x] = T(0);
    if (rowStride == 1) {
      for (int64_t c = 0; c < width; ++c)
        for (int64_t x = 0; x < k; ++x)
          dst[x * columns + c] = from[c * colStride + x];
    } else {
      for (int64_t x = 0; x < k; ++x)
        for (int64_t c = 0; c < width; ++c)
          dst[x * columns + c] = from[x * rowStride + c * colStride];
    }
  }
}

// Packs the rows of A that begin at src + at[i]. The offsets may have any
// order.
template <class T, class S>
void packRowsOfA(const S *src, const int64_t *at, int64_t colStride, int64_t m,
                 int64_t k, T *dst) {
  constexpr int rows = Block<T>::rows;
  for (int64_t i = 0; i < m; i += rows, dst += rows * k)
    for (int64_t r = 0; r < rows; ++r) {
      if (i + r >= m) {
        for (int64_t x = 0; x < k; ++x)
          dst[x * rows + r] = T(0);
        continue;
      }
      const S *from = src + at[i + r];
      for (int64_t x = 0; x < k; ++x)
        dst[x * rows + r] = from[x * colStride];
    }
}

template <class T, class S>
void packColumnsOfA(const S *src, int64_t rowStride, const int64_t *at,
                    int64_t m, int64_t k, T *dst) {
  constexpr int rows = Block<T>::rows;
  for (int64_t i = 0; i < m; i += rows, dst += rows * k) {
    int64_t height = m - i < rows ? m - i : rows;
    for (int64_t x = 0; x < k; ++x) {
      const S *from = src + at[x] + i * rowStride;
      for (int64_t r = 0; r < height; ++r)
        dst[x * rows + r] = from[r * rowStride];
      for (int64_t r = height; r < rows; ++r)
        dst[x * rows + r] = T(0);
    }
  }
}

template <class T, class S>
void packRowsOfB(const S *src, const int64_t *at, int64_t colStride, int64_t k,
                 int64_t n, T *dst) {
  constexpr int columns = Block<T>::columns;
  for (int64_t j = 0; j < n; j += columns, dst += columns * k) {
    int64_t width = n - j < columns ? n - j : columns;
    for (int64_t x = 0; x < k; ++x) {
      const S *from = src + at[x] + j * colStride;
      for (int64_t c = 0; c < width; ++c)
        dst[x * columns + c] = from[c * colStride];
      for (int64_t c = width; c < columns; ++c)
        dst[x * columns + c] = T(0);
    }
  }
}

// Computes C[rows][columns] (+)= A panel * B panel. All accumulators stay in
// registers.
template <class T>
inline void microKernel(int64_t k, const T *__restrict a, const T *__restrict b,
                        T *__restrict c, int64_t ldc, bool accumulate) {
  using B = Block<T>;
  Vec<T> acc[B::rows][B::vectors];
#pragma clang loop unroll(full)
  for (int r = 0; r < B::rows; ++r)
#pragma clang loop unroll(full)
    for (int v = 0; v < B::vectors; ++v)
      acc[r][v] = Vec<T>{};
  for (int64_t x = 0; x < k; ++x) {
    Vec<T> right[B::vectors];
#pragma clang loop unroll(full)
    for (int v = 0; v < B::vectors; ++v)
      right[v] = load<T>(b + x * B::columns + v * B::lanes);
#pragma clang loop unroll(full)
    for (int r = 0; r < B::rows; ++r) {
      Vec<T> left = splat<T>(a[x * B::rows + r]);
#pragma clang loop unroll(full)
      for (int v = 0; v < B::vectors; ++v)
        acc[r][v] += left * right[v];
    }
  }
#pragma clang loop unroll(full)
  for (int r = 0; r < B::rows; ++r)
#pragma clang loop unroll(full)
    for (int v = 0; v < B::vectors; ++v) {
      T *at = c + r * ldc + v * B::lanes;
      store<T>(at, accumulate ? load<T>(at) + acc[r][v] : acc[r][v]);
    }
}

// Computes C[m][n] (+)= packed A * packed B. C has room for whole panels.
template <class T>
void tileGemm(int64_t m, int64_t n, int64_t k, const T *a, const T *b, T *c,
              int64_t ldc, bool accumulate) {
  using B = Block<T>;
  for (int64_t j = 0; j < n; j += B::columns)
    for (int64_t i = 0; i < m; i += B::rows)
      microKernel<T>(k, a + i * k, b + j * k, c + i * ldc + j, ldc, accumulate);
}
