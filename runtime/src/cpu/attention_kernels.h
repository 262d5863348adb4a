// Attention on blocks of attentionQueries x attentionKeys scores. Included by
// isa_*.cpp.

// Sets row[j] to exp(row[j] - shift) in the first `width` columns and to 0 in
// the others. Returns the sum of the row.
template <class T> T expRow(T *row, int64_t width, T shift) {
  constexpr int lanes = Lanes<T>::count;
  Vec<T> sum{};
  for (int64_t j = 0; j < width; j += lanes) {
    Vec<T> x = expOf(load<T>(row + j) - shift);
    store<T>(row + j, x);
    sum += x;
  }
  for (int64_t j = width; j < attentionKeys; j += lanes)
    store<T>(row + j, Vec<T>{});
  T total = 0;
  for (int i = 0; i < lanes; ++i)
    total += sum[i];
  return total;
}

template <class T> T maxRow(const T *row, int64_t width) {
  constexpr int lanes = Lanes<T>::count;
  Vec<T> high = splat<T>(minusInfinity<T>);
  for (int64_t j = 0; j < width; j += lanes)
    high = maxOf<T>(load<T>(row + j), high);
  T best = high[0];
  for (int i = 1; i < lanes; ++i)
    best = high[i] > best ? high[i] : best;
  return best;
}

// Computes row[j] *= kept[j] in the first `width` columns.
template <class T> void dropRow(T *row, int64_t width, const T *kept) {
  for (int64_t j = 0; j < width; j += Lanes<T>::count)
    store<T>(row + j, load<T>(row + j) * load<T>(kept + j));
}

// Sets elements to 0. `count` is a multiple of the number of vector lanes.
template <class T> void clear(T *at, int64_t count) {
  for (int64_t x = 0; x < count; x += Lanes<T>::count)
    store<T>(at + x, Vec<T>{});
}

// Divides a thread's scratch memory into pieces.
template <class T> struct Pieces {
  T *at;
  T *take(int64_t count) {
    T *piece = at;
    at += roundUp(count, 64 / int64_t(sizeof(T)));
    return piece;
  }
};

// Returns the size of a thread's scratch memory in elements, enough for both
// the forward and the backward pass. Every array in it is rounded up to a cache
// line.
template <class S, class T = Compute<S>>
int64_t attentionScratch(int64_t d, int64_t dv) {
  int64_t wide = roundUp(d, Block<T>::columns);
  int64_t wideV = roundUp(dv, Block<T>::columns);
  return attentionQueries * (2 * (wide + wideV) + wide) +
         attentionKeys * 3 * (wide + wideV) +
         5 * attentionQueries * attentionKeys + 2 * attentionQueries + 20 * 16;
}

template <class S, class T = Compute<S>>
int64_t attentionForward(const AttentionProblem<S> &p, int64_t b, int64_t n,
                         int64_t g, int64_t queryBlock, T *scratch) {
  constexpr int64_t BQ = attentionQueries, BK = attentionKeys;
  const int64_t wideV = roundUp(p.dv, Block<T>::columns);
  Pieces<T> pieces{scratch};
  T *packedQ = pieces.take(BQ * p.d), *packedK = pieces.take(BK * p.d);
  T *packedV = pieces.take(BK * wideV), *packedP = pieces.take(BQ * BK);
  T *scores = pieces.take(BQ * BK), *acc = pieces.take(BQ * wideV);
  T *rowMax = pieces.take(BQ), *rowSum = pieces.take(BQ);

  const int64_t q0 = queryBlock * BQ, queries = minOf(p.qLen - q0, BQ);
  for (int64_t i = 0; i < queries; ++i) {
    rowMax[i] = minusInfinity<T>;
    rowSum[i] = 0;
    clear(acc + i * wideV, wideV);
  }
  int64_t computed = 0;
  Area packed{};
  for (int64_t k0 = 0; k0 < p.kLen; k0 += BK) {
    int64_t keys = minOf(p.kLen - k0, BK);
    int checks = checksOf(p, b, q0, k0, keys);
    if (checks == nothingSeen)
      continue;
    Area x = narrowed(p, b, {q0, queries, k0, keys}, checks);
    if (x.queries == 0)
      continue;
    computed += x.queries * x.keys;
    if (x.q0 != packed.q0 || x.queries != packed.queries)
      packA<T>(p.q.at(b, x.q0, n, g), p.q.strides[1], p.q.strides[4], x.queries,
               p.d, p.scale, packedQ);
    packed = x;
    packB<T>(p.k.at(b, x.k0, n, 0), p.k.strides[4], p.k.strides[1], p.d, x.keys,
             packedK);
    tileGemm<T>(x.queries, x.keys, p.d, packedQ, packedK, scores, BK, false);
    DropoutWords words;
    if (p.dropoutKeys)
      words = dropoutWords(p, b, x.k0, x.keys);
    for (int64_t i = 0; i < x.queries; ++i) {
      T *row = scores + i * BK;
      int64_t at = x.q0 - q0 + i; // index of the query in the block
      int64_t width =
          finishRow(p, b, n, g, x.q0 + i, x.k0, x.keys, checks, row);
      T high = maxRow(row, width);
      high = high > rowMax[at] ? high : rowMax[at];
      // If no key was seen yet, 0 is subtracted: exp(-inf - -inf) is NaN.
      T shift = high == minusInfinity<T> ? T(0) : high;
      T shrink = expOf(splat<T>(rowMax[at] - shift))[0];
      rowSum[at] = rowSum[at] * shrink + expRow(row, width, shift);
      rowMax[at] = high;
      if (p.dropoutKeys) { // rowSum includes dropped weights
        T kept[BK];
        findKept(p, b, n, g, x.q0 + i, x.keys, words, kept);
        dropRow(row, width, kept);
      }
      if (shrink != T(1))
        for (int64_t c = 0; c < wideV; c += Lanes<T>::count)
          store<T>(acc + at * wideV + c,
                   load<T>(acc + at * wideV + c) * shrink);
    }
    packA<T>(scores, BK, 1, x.queries, x.keys, T(1), packedP);
    packB<T>(p.v.at(b, x.k0, n, 0), p.v.strides[1], p.v.strides[4], x.keys,
             p.dv, packedV);
    if (checks & checkKeys)
      dropHiddenKeys(p, b, x.k0, x.keys, p.dv, packedV);
    tileGemm<T>(x.queries, p.dv, x.keys, packedP, packedV,
                acc + (x.q0 - q0) * wideV, wideV, true);
  }
  for (int64_t i = 0; i < queries; ++i) {
    S *o = p.o.at(b, q0 + i, n, g);
    // A NaN score makes the sum NaN, which must appear in the output.
    bool empty = rowSum[i] == T(0);
    T factor = empty ? T(0) : T(1) / rowSum[i];
    for (int64_t x = 0; x < p.dv; ++x)
      o[x * p.o.strides[4]] = empty ? T(0) : acc[i * wideV + x] * factor;
    *p.lse.at(b, q0 + i, n, g) =
        empty ? minusInfinity<T> : rowMax[i] + T(__builtin_log(rowSum[i]));
  }
  return computed;
}

// The array in which dq is summed. If the output array has the type in which
// sums are computed, it is the output array itself, else `sums`.
template <class S, class T = Compute<S>> struct QuerySums {
  const AttentionProblem<S> &p;
  int64_t b, n;
  T *sums; // [g, qLen, d]

  template <class Visit> void visit(int64_t g, int64_t i, Visit visit) const {
    if constexpr (sizeof(S) == sizeof(T)) {
      T *dq = p.dq.at(b, i, n, g);
      for (int64_t x = 0; x < p.d; ++x)
        visit(x, dq[x * p.dq.strides[4]]);
    } else {
      for (int64_t x = 0; x < p.d; ++x)
        visit(x, sums[(g * p.qLen + i) * p.d + x]);
    }
  }
  void write() const {
    if constexpr (sizeof(S) != sizeof(T))
      for (int64_t g = 0; g < p.g; ++g)
        for (int64_t i = 0; i < p.qLen; ++i) {
          S *dq = p.dq.at(b, i, n, g);
          visit(g, i, [&](int64_t x, T sum) { dq[x * p.dq.strides[4]] = sum; });
        }
  }
};

// Computes delta[i] = sum(dO * o) of each query, and sets dq = 0.
template <class S, class T = Compute<S>>
void backwardSetup(const AttentionProblem<S> &p, int64_t b, int64_t n, T *delta,
                   const QuerySums<S> &dq) {
  for (int64_t g = 0; g < p.g; ++g)
    for (int64_t i = 0; i < p.qLen; ++i) {
      const S *o = p.o.at(b, i, n, g), *dO = p.dO.at(b, i, n, g);
      T sum = 0;
      for (int64_t x = 0; x < p.dv; ++x)
        sum += T(o[x * p.o.strides[4]]) * T(dO[x * p.dO.strides[4]]);
      delta[g * p.qLen + i] = sum;
      dq.visit(g, i, [](int64_t, T &sum) { sum = 0; });
    }
}

template <class S, class T = Compute<S>>
void writeKeyGradient(const typename AttentionProblem<S>::Array &array,
                      int64_t b, int64_t k0, int64_t n, int64_t keys,
                      int64_t width, const T *acc, int64_t wide) {
  for (int64_t j = 0; j < keys; ++j) {
    S *row = array.at(b, k0 + j, n, 0);
    for (int64_t x = 0; x < width; ++x)
      row[x * array.strides[4]] = acc[j * wide + x];
  }
}

// Computes P = exp(s - lse), which replaces the scores in memory, and dS = P *
// (dP - delta), times the derivative of the soft cap, which replaces dP. With
// dropout, dP is masked before dS is computed, and P is masked afterwards.
template <class S, class T = Compute<S>>
void backwardScores(const AttentionProblem<S> &p, int64_t b, int64_t n,
                    int64_t g, const Area &area, int checks, const T *delta,
                    T *scores, T *dP) {
  constexpr int64_t BK = attentionKeys;
  T slope[BK] = {}, kept[BK];
  DropoutWords words;
  if (p.dropoutKeys)
    words = dropoutWords(p, b, area.k0, area.keys);
  for (int64_t i = 0; i < area.queries; ++i) {
    T *row = scores + i * BK, *gradient = dP + i * BK;
    int64_t query = area.q0 + i;
    int64_t width =
        finishRow(p, b, n, g, query, area.k0, area.keys, checks, row, slope);
    T lse = *p.lse.at(b, query, n, g);
    // If lse is -inf, no key is visible to this query: the scores are -inf, and
    // P = exp(-inf - 0) = 0.
    expRow(row, width, lse == minusInfinity<T> ? T(0) : lse);
    T shift = delta[g * p.qLen + query];
    if (p.dropoutKeys) {
      findKept(p, b, n, g, query, area.keys, words, kept);
      dropRow(gradient, BK, kept);
    }
    for (int64_t j = 0; j < BK; j += Lanes<T>::count) {
      Vec<T> weight = load<T>(row + j);
      Vec<T> dS = weight * (load<T>(gradient + j) - shift);
      if (p.softcap != T(0))
        dS *= load<T>(slope + j);
      // dP of a hidden key may be NaN. It is replaced by 0 and not multiplied
      // by the weight 0, which would give NaN.
      store<T>(gradient + j, weight == T(0) ? Vec<T>{} : dS);
    }
    if (p.dropoutKeys)
      dropRow(row, BK, kept);
  }
}

// A block of keys and values in the layouts that the backward pass reads.
template <class S, class T = Compute<S>>
void packKeys(const AttentionProblem<S> &p, int64_t b, int64_t n, int64_t k0,
              int64_t keys, int checks, T *transposedK, T *rightK,
              T *transposedV) {
  const S *k = p.k.at(b, k0, n, 0), *v = p.v.at(b, k0, n, 0);
  packB<T>(k, p.k.strides[4], p.k.strides[1], p.d, keys, transposedK);
  packB<T>(k, p.k.strides[1], p.k.strides[4], keys, p.d, rightK);
  packB<T>(v, p.v.strides[4], p.v.strides[1], p.dv, keys, transposedV);
  if (checks & checkKeys)
    dropHiddenKeys(p, b, k0, keys, p.d, rightK);
}

template <class S, class T = Compute<S>>
int64_t attentionBackward(const AttentionProblem<S> &p, int64_t b, int64_t n,
                          T *scratch) {
  constexpr int64_t BQ = attentionQueries, BK = attentionKeys;
  const int64_t wide = roundUp(p.d, Block<T>::columns);
  const int64_t wideV = roundUp(p.dv, Block<T>::columns);
  Pieces<T> pieces{scratch};
  T *leftQ = pieces.take(BQ * p.d), *rightQ = pieces.take(BQ * wide);
  T *leftDO = pieces.take(BQ * p.dv), *rightDO = pieces.take(BQ * wideV);
  T *transposedK = pieces.take(BK * p.d), *rightK = pieces.take(BK * wide);
  T *transposedV = pieces.take(BK * p.dv);
  T *scores = pieces.take(BQ * BK), *dP = pieces.take(BQ * BK);
  T *packedP = pieces.take(BQ * BK), *packedDS = pieces.take(BQ * BK);
  T *packedDSt = pieces.take(BQ * BK), *dqBlock = pieces.take(BQ * wide);
  T *dkAcc = pieces.take(BK * wide), *dvAcc = pieces.take(BK * wideV);
  T *delta = p.delta + (b * p.n + n) * p.g * p.qLen;

  QuerySums<S> dq{p, b, n,
                  scratch + roundUp(attentionScratch<S>(p.d, p.dv), 64)};

  int64_t computed = 0;
  backwardSetup(p, b, n, delta, dq);
  for (int64_t k0 = 0; k0 < p.kLen; k0 += BK) {
    int64_t keys = minOf(p.kLen - k0, BK);
    clear(dkAcc, keys * wide);
    clear(dvAcc, keys * wideV);
    Area packed{};
    for (int64_t g = 0; g < p.g; ++g)
      for (int64_t q0 = 0; q0 < p.qLen; q0 += BQ) {
        int checks = checksOf(p, b, q0, k0, keys);
        if (checks == nothingSeen)
          continue;
        Area x = narrowed(p, b, {q0, minOf(p.qLen - q0, BQ), k0, keys}, checks);
        if (x.queries == 0)
          continue;
        computed += x.queries * x.keys;
        if (x.k0 != packed.k0 || x.keys != packed.keys)
          packKeys(p, b, n, x.k0, x.keys, checks, transposedK, rightK,
                   transposedV);
        packed = x;
        const S *q = p.q.at(b, x.q0, n, g), *dO = p.dO.at(b, x.q0, n, g);
        packA<T>(q, p.q.strides[1], p.q.strides[4], x.queries, p.d, p.scale,
                 leftQ);
        packA<T>(dO, p.dO.strides[1], p.dO.strides[4], x.queries, p.dv, T(1),
                 leftDO);
        packB<T>(q, p.q.strides[1], p.q.strides[4], x.queries, p.d, rightQ);
        packB<T>(dO, p.dO.strides[1], p.dO.strides[4], x.queries, p.dv,
                 rightDO);
        tileGemm<T>(x.queries, x.keys, p.d, leftQ, transposedK, scores, BK,
                    false);
        tileGemm<T>(x.queries, x.keys, p.dv, leftDO, transposedV, dP, BK,
                    false);
        backwardScores(p, b, n, g, x, checks, delta, scores, dP);
        // dV += P^T dO; dK += scale dS^T Q; dQ += scale dS K
        int64_t row = x.k0 - k0;
        packA<T>(scores, 1, BK, x.keys, x.queries, T(1), packedP);
        tileGemm<T>(x.keys, p.dv, x.queries, packedP, rightDO,
                    dvAcc + row * wideV, wideV, true);
        packA<T>(dP, 1, BK, x.keys, x.queries, p.scale, packedDSt);
        tileGemm<T>(x.keys, p.d, x.queries, packedDSt, rightQ,
                    dkAcc + row * wide, wide, true);
        packA<T>(dP, BK, 1, x.queries, x.keys, p.scale, packedDS);
        tileGemm<T>(x.queries, p.d, x.keys, packedDS, rightK, dqBlock, wide,
                    false);
        for (int64_t i = 0; i < x.queries; ++i)
          dq.visit(g, x.q0 + i,
                   [&](int64_t c, T &sum) { sum += dqBlock[i * wide + c]; });
      }
    writeKeyGradient<S>(p.dk, b, k0, n, keys, p.d, dkAcc, wide);
    writeKeyGradient<S>(p.dV, b, k0, n, keys, p.dv, dvAcc, wideV);
  }
  dq.write();
  return computed;
}
