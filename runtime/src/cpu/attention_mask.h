// Attention masks: decides which keys a query sees, and converts products q k^T
// to scores. Included by isa_*.cpp, before attention_kernels.h.

template <class T> constexpr T minusInfinity = -T(__builtin_inff());

// The conditions of the mask that must be checked for each (query, key) pair of
// a block, because they do not hold for the whole block.
enum Checks {
  noCheck = 0,
  checkPositions = 1,
  checkSegments = 2,
  checkKeys = 4
};
// The value of checksOf() for a block in which no query sees any key.
constexpr int nothingSeen = -1;

inline int64_t minOf(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t maxOf(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t clampTo(int64_t x, int64_t low, int64_t high) {
  return x < low ? low : x > high ? high : x;
}

// Saturating addition, because positions may be any 64-bit numbers.
inline int64_t plus(int64_t a, int64_t b) {
  int64_t sum;
  if (!__builtin_add_overflow(a, b, &sum))
    return sum;
  return b > 0 ? INT64_MAX : INT64_MIN;
}

// The range [low, high] of key positions that a query sees under the causal
// mask and the window.
struct Span {
  int64_t low, high;
};

template <class S, class T = Compute<S>>
inline Span spanOf(const AttentionProblem<S> &p, int64_t position) {
  Span span = {INT64_MIN, INT64_MAX};
  if (p.window)
    span = {plus(position, 1 - p.window), plus(position, p.window - 1)};
  if (p.causal)
    span.high = position;
  return span;
}

// Compares the position and segment ranges of a block's queries and keys.
// Returns which conditions must be checked for each pair (`Checks`), or
// nothingSeen.
template <class S, class T = Compute<S>>
int checksOf(const AttentionProblem<S> &p, int64_t b, int64_t q0, int64_t k0,
             int64_t keys) {
  if (!p.keyBlocks)
    return noCheck;
  int64_t sample = p.blockSamples == 1 ? 0 : b;
  const AttentionBlock &q =
      p.queryBlocks[sample * blocksOf(p.qLen, attentionQueries) +
                    q0 / attentionQueries];
  const AttentionBlock &k =
      p.keyBlocks[sample * blocksOf(p.kLen, attentionKeys) +
                  k0 / attentionKeys];
  if (k.count == 0)
    return nothingSeen;
  int checks = k.count < keys ? checkKeys : noCheck;
  // The span of a query moves with its position. So the spans of the queries
  // with the lowest and the highest position bound those of all queries.
  Span first = spanOf(p, q.lowPosition), last = spanOf(p, q.highPosition);
  if (k.highPosition < first.low || k.lowPosition > last.high)
    return nothingSeen;
  if (k.lowPosition < last.low || k.highPosition > first.high)
    checks |= checkPositions;
  if (k.highSegment < q.lowSegment || k.lowSegment > q.highSegment)
    return nothingSeen;
  if (k.lowSegment != q.highSegment || k.highSegment != q.lowSegment)
    checks |= checkSegments;
  return checks;
}

// A block of scores: `queries` queries from q0 on, and `keys` keys from k0 on.
struct Area {
  int64_t q0, queries, k0, keys;
};

// Shrinks a block: removes keys at its borders that none of its queries sees,
// and queries at its borders that see none of its keys. Such keys and queries
// occur at the diagonal of a causal mask, and if positions are not consecutive.
// The number of keys or queries removed at the beginning is rounded down to a
// multiple of Block<T>::rows, the number of rows that tileGemm writes at once.
template <class S, class T = Compute<S>>
Area narrowed(const AttentionProblem<S> &p, int64_t b, Area area, int checks) {
  if (!(checks & checkPositions))
    return area;
  auto extremes = [&](const AttentionIndex &index, int64_t at, int64_t count) {
    Span all{INT64_MAX, INT64_MIN};
    for (int64_t i = 0; i < count; ++i) {
      int64_t position = index.at(b, at + i);
      all = {minOf(all.low, position), maxOf(all.high, position)};
    }
    return all;
  };
  auto drop = [](int64_t &at, int64_t &count, auto isSeen) {
    while (count && !isSeen(at + count - 1))
      --count;
    int64_t skipped = 0;
    while (skipped < count && !isSeen(at + skipped))
      ++skipped;
    skipped -= skipped % Block<T>::rows;
    at += skipped;
    count -= skipped;
  };
  Span queries = extremes(p.queryPositions, area.q0, area.queries);
  Span seen = {spanOf(p, queries.low).low, spanOf(p, queries.high).high};
  drop(area.k0, area.keys, [&](int64_t j) {
    int64_t position = p.keyPositions.at(b, j);
    return position >= seen.low && position <= seen.high;
  });
  Span keys = extremes(p.keyPositions, area.k0, area.keys);
  drop(area.q0, area.queries, [&](int64_t i) {
    Span own = spanOf(p, p.queryPositions.at(b, i));
    return own.low <= keys.high && own.high >= keys.low;
  });
  return area;
}

// Sets row[j] to -inf for those j in [begin, end) whose entry (a position or a
// segment) is outside of `span`.
template <class T>
inline void keepWithin(const int64_t *entries, int64_t stride, Span span,
                       int64_t begin, int64_t end, T *row) {
  auto keep = [&](int64_t j, int64_t entry) {
    bool seen = (entry >= span.low) & (entry <= span.high);
    row[j] = seen ? row[j] : minusInfinity<T>;
  };
  if (stride == 1) // vectorized
    for (int64_t j = begin; j < end; ++j)
      keep(j, entries[j]);
  else
    for (int64_t j = begin; j < end; ++j)
      keep(j, entries[j * stride]);
}

// Applies the soft cap: x becomes c tanh(x / c), and `slope` its derivative.
template <class T>
inline void capRow(T softcap, int64_t begin, int64_t end, T *row, T *slope) {
  constexpr int lanes = Lanes<T>::count;
  for (int64_t j = begin / lanes * lanes; j < end; j += lanes) {
    Vec<T> x = tanhOf<T>(load<T>(row + j) / softcap);
    store<T>(row + j, x * softcap);
    if (slope)
      store<T>(slope + j, splat(T(1)) - x * x);
  }
}

// Converts a row of products q k^T to scores: scales them, applies the soft
// cap, adds the bias, and writes -inf for hidden keys. Returns the number of
// columns that were written, a multiple of the vector length. All keys after
// these columns are hidden.
template <class S, class T = Compute<S>>
int64_t finishRow(const AttentionProblem<S> &p, int64_t b, int64_t n, int64_t g,
                  int64_t query, int64_t k0, int64_t keys, int checks, T *row,
                  T *slope = nullptr) {
  int64_t begin = 0, end = keys;
  Span span{};
  if (checks & checkPositions) {
    span = spanOf(p, p.queryPositions.at(b, query));
    if (!p.keyPositions.data) { // the keys from `begin` to `end`
      int64_t first = p.keyPositions.offset + k0;
      begin = clampTo(plus(span.low, -first), 0, keys);
      end = clampTo(plus(plus(span.high, 1), -first), begin, keys);
    }
  }
  if (p.softcap != T(0))
    capRow(p.softcap, begin, end, row, slope);
  if (p.bias) {
    const T *bias = p.bias + b * p.biasStrides[0] + query * p.biasStrides[1] +
                    n * p.biasStrides[2] + g * p.biasStrides[3] +
                    k0 * p.biasStrides[4];
    for (int64_t j = begin; j < end; ++j)
      row[j] += bias[j * p.biasStrides[4]];
  }
  auto keep = [&](const AttentionIndex &index, Span span) {
    keepWithin(index.data + b * index.strides[0] + k0 * index.strides[1],
               index.strides[1], span, begin, end, row);
  };
  if ((checks & checkPositions) && p.keyPositions.data)
    keep(p.keyPositions, span);
  if (checks & checkSegments) {
    int64_t own = p.querySegments.at(b, query);
    keep(p.keySegments, {own, own});
  }
  if (checks & checkKeys) {
    const uint8_t *mask =
        p.keyMask + b * p.keyMaskStrides[0] + k0 * p.keyMaskStrides[1];
    for (int64_t j = begin; j < end; ++j)
      row[j] = mask[j * p.keyMaskStrides[1]] ? row[j] : minusInfinity<T>;
  }
  int64_t width = roundUp(end, Lanes<T>::count);
  for (int64_t j = 0; j < begin; ++j)
    row[j] = minusInfinity<T>;
  for (int64_t j = end; j < width; ++j)
    row[j] = minusInfinity<T>;
  return width;
}

// Sets the rows of hidden keys in a packed B to 0. Hidden values may be NaN,
// and 0 * NaN is NaN.
template <class S, class T = Compute<S>>
void dropHiddenKeys(const AttentionProblem<S> &p, int64_t b, int64_t k0,
                    int64_t keys, int64_t width, T *packed) {
  constexpr int64_t columns = Block<T>::columns;
  for (int64_t j = 0; j < keys; ++j)
    if (!p.keyMask[b * p.keyMaskStrides[0] + (k0 + j) * p.keyMaskStrides[1]])
      for (int64_t x = 0; x < roundUp(width, columns); x += columns)
        for (int64_t c = 0; c < columns; ++c)
          packed[x * keys + j * columns + c] = T(0);
}
