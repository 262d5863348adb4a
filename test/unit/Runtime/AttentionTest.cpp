// Blockwise attention against naive loops in double, and its gradients
// against central differences.

#include "../TriesAll.h"
#include "Helpers.h"

#include "cleave/philox.h"
#include "cleave/workspace.h"
#include "cpu/attention.h"
#include "cpu/micro.h"

#include <algorithm>
#include <functional>

using namespace cleave;
using namespace cleave::program;
using namespace cleave::test;

namespace {
struct Case {
  int64_t b = 1, qLen = 1, kLen = 1, n = 1, g = 1, d = 1, dv = 1;
  bool causal = false;
  int64_t queryOffset = 0, keyOffset = 0;
  // ZigZag: a sequence cut into pieces, of which a tile has piece `first` and
  // its mirror image.
  enum Positions { Default, Shuffled, ZigZag } positions = Default;
  bool segments = false, keyMask = false, bias = false;
  int64_t window = 0;
  double softcap = 0;
  int64_t pieces = 4, queryPiece = 1, keyPiece = 2; // of ZigZag
  bool headsFirst =
      false; // memory order [b, n, g, s, d] instead of [b, s, n, g, d]
  double dropout = 0;

  std::string text() const {
    return std::to_string(qLen) + " queries, " + std::to_string(kLen) +
           " keys, causal " + std::to_string(causal) + ", positions " +
           std::to_string(positions) + ", segments " +
           std::to_string(segments) + ", key mask " + std::to_string(keyMask) +
           ", bias " + std::to_string(bias) + ", window " +
           std::to_string(window) + ", softcap " + std::to_string(softcap) +
           ", dropout " + std::to_string(dropout);
  }
};

std::array<int64_t, 5> stridesOf(const Case &c, int64_t length, int64_t groups,
                                 int64_t width) {
  int64_t heads = c.n * groups;
  if (c.headsFirst)
    return {heads * length * width, width, groups * length * width,
            length * width, 1};
  return {length * heads * width, heads * width, groups * width, width, 1};
}

Attention describe(const Case &c, DType dtype, bool backward) {
  Attention x;
  x.backward = backward;
  x.dtype = dtype;
  x.b = c.b, x.qLen = c.qLen, x.kLen = c.kLen;
  x.n = c.n, x.g = c.g, x.d = c.d, x.dv = c.dv;
  x.q.strides = x.dq.strides = stridesOf(c, c.qLen, c.g, c.d);
  x.k.strides = x.dk.strides = stridesOf(c, c.kLen, 1, c.d);
  x.v.strides = x.dV.strides = stridesOf(c, c.kLen, 1, c.dv);
  x.o.strides = x.dO.strides = stridesOf(c, c.qLen, c.g, c.dv);
  x.lse.strides = {c.n * c.g * c.qLen, 1, c.g * c.qLen, c.qLen, 0};
  x.scale = 1 / std::sqrt(double(c.d));
  x.causal = c.causal;
  x.queryOffset = c.queryOffset, x.keyOffset = c.keyOffset;
  x.window = c.window;
  x.softcap = c.softcap;
  auto place = [](auto &ref, decltype(ref.strides) strides) {
    ref.buffer.arena = 0; // present
    ref.strides = strides;
  };
  if (c.bias) // [heads, q, k] for all batches
    place(x.bias, {0, c.kLen, c.g * c.qLen * c.kLen, c.qLen * c.kLen, 1});
  if (c.keyMask)
    place(x.keyMask, {c.kLen, 1});
  if (c.positions != Case::Default) {
    bool shared = c.positions == Case::ZigZag;
    place(x.queryPositions, {shared ? 0 : c.qLen, 1});
    place(x.keyPositions, {shared ? 0 : c.kLen, 1});
  }
  if (c.dropout != 0) {
    x.dropout = c.dropout;
    place(x.dropoutKeys, {1, 0, c.g * c.b, c.b, 0}); // stored as [n, g, b]
    place(x.queryIndices, {0, 1});
    place(x.keyIndices, {0, 1});
  }
  if (c.segments) { // [b, s], stored as [s, b]
    place(x.querySegments, {1, c.b});
    place(x.keySegments, {1, c.b});
  }
  return x;
}

// The positions of a rank's tokens: piece `first` and its mirror image.
std::vector<int64_t> zigZag(int64_t length, int64_t pieces, int64_t first) {
  std::vector<int64_t> positions;
  int64_t half = length / 2, rest = length - half;
  for (int64_t i = 0; i < half; ++i)
    positions.push_back(first * rest + i);
  for (int64_t i = 0; i < rest; ++i)
    positions.push_back((2 * pieces - 1 - first) * rest + i);
  return positions;
}

template <class T> struct Data {
  std::vector<T> q, k, v, o, lse, dO, dq, dk, dV, bias;
  std::vector<uint8_t> keep;
  std::vector<int64_t> queryPositions, keyPositions, querySegments, keySegments;
  std::vector<int64_t> dropoutKeys, queryIndices, keyIndices;

  explicit Data(const Case &c) {
    int64_t heads = c.n * c.g;
    q = randomVector<T>(c.b * c.qLen * heads * c.d, 1);
    k = randomVector<T>(c.b * c.kLen * c.n * c.d, 2);
    v = randomVector<T>(c.b * c.kLen * c.n * c.dv, 3);
    dO = randomVector<T>(c.b * c.qLen * heads * c.dv, 4);
    o.assign(c.b * c.qLen * heads * c.dv, T(NAN));
    lse.assign(c.b * c.qLen * heads, T(NAN));
    dq.assign(q.size(), T(NAN));
    dk.assign(k.size(), T(NAN));
    dV.assign(v.size(), T(NAN));
    bias = randomVector<T>(c.bias ? heads * c.qLen * c.kLen : 0, 5);
    std::mt19937 engine(6);
    for (int64_t i = 0; i < c.b * c.kLen; ++i)
      keep.push_back(engine() % 3 != 0);
    if (c.positions == Case::ZigZag) {
      queryPositions = zigZag(c.qLen, c.pieces, c.queryPiece);
      keyPositions = zigZag(c.kLen, c.pieces, c.keyPiece);
    } else { // not increasing
      for (int64_t i = 0; i < c.b * c.qLen; ++i)
        queryPositions.push_back((i % c.qLen) * 7 % c.qLen);
      for (int64_t i = 0; i < c.b * c.kLen; ++i)
        keyPositions.push_back((i % c.kLen) * 5 % c.kLen);
    }
    std::mt19937_64 words(7);
    for (int64_t i = 0; i < c.b * heads; ++i)
      dropoutKeys.push_back(int64_t(words()));
    if (c.positions == Case::ZigZag) {
      queryIndices = queryPositions;
      keyIndices = keyPositions;
    } else { // a later piece, an offset not divisible by four, or unordered
      int64_t step = c.positions == Case::Default ? 1 : 7;
      for (int64_t i = 0; i < c.qLen; ++i)
        queryIndices.push_back((int64_t(1) << 33) + 3 + i);
      for (int64_t j = 0; j < c.kLen; ++j)
        keyIndices.push_back((int64_t(1) << 33) + 2 + j * step % 1000);
    }
    // Each sample has documents of other lengths.
    for (int64_t i = 0; i < c.qLen; ++i)
      for (int64_t b = 0; b < c.b; ++b)
        querySegments.push_back((i + 7 * b) / 50);
    for (int64_t j = 0; j < c.kLen; ++j)
      for (int64_t b = 0; b < c.b; ++b)
        keySegments.push_back((j + 9 * b) / 50);
  }

  bool isHidden(const Case &c, int64_t key) const {
    return c.keyMask && !keep[key];
  }
};

// Sets every key and value that the mask hides to NaN.
template <class T> void spoilHidden(const Case &c, Data<T> &data) {
  Attention x = describe(c, DType::F64, false);
  for (int64_t b = 0; b < c.b; ++b)
    for (int64_t j = 0; j < c.kLen; ++j)
      for (int64_t n = 0; n < c.n && data.isHidden(c, b * c.kLen + j); ++n) {
        auto spoil = [&](std::vector<T> &values, const AttentionRef &ref,
                         int64_t width) {
          for (int64_t f = 0; f < width; ++f)
            values[b * ref.strides[0] + j * ref.strides[1] +
                   n * ref.strides[2] + f * ref.strides[4]] = T(NAN);
        };
        spoil(data.k, x.k, c.d);
        spoil(data.v, x.v, c.dv);
      }
}

// Computes o and lse of `data`, or its gradients. Returns the number of
// floating-point operations counted by the runtime.
template <class T>
int64_t runOn(const Case &c, Data<T> &data, bool backward, int threads = 1) {
  Attention x =
      describe(c, std::is_same_v<T, float> ? DType::F32 : DType::F64, backward);
  std::string error;
  int64_t bytes = attentionWorkspace(x, threads, error);
  EXPECT_GE(bytes, 0) << error;
  Aligned<char> workspace(bytes);
  std::fill_n(workspace.data.get(), bytes, char(0xff)); // NaNs
  AttentionBuffers at;
  at.q = data.q.data(), at.k = data.k.data(), at.v = data.v.data();
  at.o = data.o.data(), at.lse = data.lse.data(), at.dO = data.dO.data();
  at.dq = data.dq.data(), at.dk = data.dk.data(), at.dV = data.dV.data();
  if (c.bias)
    at.bias = data.bias.data();
  if (c.keyMask)
    at.keyMask = data.keep.data();
  if (c.positions != Case::Default) {
    at.queryPositions = data.queryPositions.data();
    at.keyPositions = data.keyPositions.data();
  }
  if (c.segments) {
    at.querySegments = data.querySegments.data();
    at.keySegments = data.keySegments.data();
  }
  if (c.dropout != 0) {
    at.dropoutKeys = data.dropoutKeys.data();
    at.queryIndices = data.queryIndices.data();
    at.keyIndices = data.keyIndices.data();
  }
  std::atomic<int64_t> flops = 0;
  at.flops = &flops;
  at.workspace = workspace.data.get();
  makeAttention(x, at, threads)();
  return flops;
}

bool isVisible(const Case &c, const Data<double> &data, int64_t b, int64_t i,
               int64_t j) {
  if (data.isHidden(c, b * c.kLen + j))
    return false;
  if (c.segments &&
      data.querySegments[i * c.b + b] != data.keySegments[j * c.b + b])
    return false;
  int64_t qpos = c.queryOffset + i, kpos = c.keyOffset + j;
  int64_t sample = c.positions == Case::ZigZag ? 0 : b;
  if (c.positions != Case::Default) {
    qpos = data.queryPositions[sample * c.qLen + i];
    kpos = data.keyPositions[sample * c.kLen + j];
  }
  if (c.window && std::abs(qpos - kpos) >= c.window)
    return false;
  return !c.causal || kpos <= qpos;
}

// The factor by which dropout multiplies a weight.
double kept(const Case &c, const Data<double> &data, int64_t b, int64_t n,
            int64_t g, int64_t i, int64_t j) {
  if (c.dropout == 0)
    return 1;
  int64_t key = data.keyIndices[j];
  philox::Block block = philox::blockOf(
      uint64_t(data.dropoutKeys[(n * c.g + g) * c.b + b]),
      {{uint32_t(key / 4), uint32_t(data.queryIndices[i]), 0, 0}});
  bool isKept = block.words[key % 4] / 4294967296.0 >= c.dropout;
  return isKept ? 1 / (1 - c.dropout) : 0;
}

// Computes o and lse of `data` with naive loops.
void naive(const Case &c, Data<double> &data) {
  Attention x = describe(c, DType::F64, false);
  auto at = [](const AttentionRef &ref, int64_t b, int64_t s, int64_t n,
               int64_t g, int64_t f) {
    return b * ref.strides[0] + s * ref.strides[1] + n * ref.strides[2] +
           g * ref.strides[3] + f * ref.strides[4];
  };
  for (int64_t b = 0; b < c.b; ++b)
    for (int64_t n = 0; n < c.n; ++n)
      for (int64_t g = 0; g < c.g; ++g)
        for (int64_t i = 0; i < c.qLen; ++i) {
          std::vector<double> scores(c.kLen, -INFINITY);
          double high = -INFINITY, sum = 0;
          for (int64_t j = 0; j < c.kLen; ++j) {
            if (!isVisible(c, data, b, i, j))
              continue;
            double score = 0;
            for (int64_t f = 0; f < c.d; ++f)
              score += data.q[at(x.q, b, i, n, g, f)] *
                       data.k[at(x.k, b, j, n, 0, f)];
            scores[j] = score * x.scale;
            if (c.softcap != 0)
              scores[j] = c.softcap * std::tanh(scores[j] / c.softcap);
            if (c.bias)
              scores[j] += data.bias[((n * c.g + g) * c.qLen + i) * c.kLen + j];
            high = std::max(high, scores[j]);
          }
          for (double score : scores)
            sum += high == -INFINITY ? 0 : std::exp(score - high);
          data.lse[((b * c.n + n) * c.g + g) * c.qLen + i] =
              sum == 0 ? -INFINITY : high + std::log(sum);
          for (int64_t f = 0; f < c.dv; ++f) {
            double o = 0;
            for (int64_t j = 0; j < c.kLen; ++j)
              o += scores[j] == -INFINITY ? 0
                                          : std::exp(scores[j] - high) / sum *
                                                kept(c, data, b, n, g, i, j) *
                                                data.v[at(x.v, b, j, n, 0, f)];
            data.o[at(x.o, b, i, n, g, f)] = o;
          }
        }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  // Lengths around the block sizes, with grouped heads and unequal widths.
  for (auto [q, k] : {std::pair{1, 1}, {5, 7}, {48, 96}, {49, 97}, {150, 200}})
    for (bool causal : {false, true})
      for (bool headsFirst : {false, true}) {
        Case c{2, q, k, 2, 3, 20, 24, causal};
        c.queryOffset = k - q; // the last query sees every key
        c.headsFirst = headsFirst;
        all.push_back(c);
      }
  // Every combination of masks, with and without bias and softcap. Some queries
  // see no key.
  for (auto positions : {Case::Default, Case::Shuffled, Case::ZigZag})
    for (int bits = 0; bits < 16; ++bits) {
      Case c{2, 120, 130, 2, 1, 16, 12, (bits & 1) != 0};
      c.positions = positions;
      c.window = bits & 2 ? 40 : 0;
      c.segments = (bits & 4) != 0;
      c.keyMask = (bits & 8) != 0;
      c.bias = bits % 3 == 0;
      c.softcap = bits % 2 ? 0.5 : 0; // scores reach 2
      all.push_back(c);
    }
  // Dropout of weights, in combination with the other options.
  for (auto positions : {Case::Default, Case::Shuffled, Case::ZigZag})
    for (int bits = 0; bits < 4; ++bits) {
      Case c{2, 70, 115, 2, 2, 16, 12, (bits & 1) != 0};
      c.positions = positions;
      c.keyMask = c.headsFirst = (bits & 2) != 0;
      c.window = bits == 3 ? 50 : 0;
      c.softcap = bits == 1 ? 0.5 : 0;
      c.dropout = bits == 2 ? 0.7 : 0.25;
      all.push_back(c);
    }
  // Keys start at position 100: the first queries see no key.
  Case late{1, 120, 60, 1, 2, 8, 8, true};
  late.keyOffset = 100;
  all.push_back(late);
  return all;
}

TEST(Attention, ForwardMatchesLoops) {
  for (const Case &c : cases()) {
    SCOPED_TRACE(c.text());
    Data<double> expected(c), wide(c);
    naive(c, expected);
    Data<float> narrow(c);
    spoilHidden(c, wide);
    spoilHidden(c, narrow);
    for (int threads : {1, 3}) {
      runOn(c, wide, false, threads);
      EXPECT_LT(relativeError(wide.o, expected.o), 1e-13);
      for (size_t i = 0; i < wide.lse.size(); ++i)
        if (std::isinf(expected.lse[i]))
          EXPECT_EQ(wide.lse[i], expected.lse[i]);
        else
          EXPECT_NEAR(wide.lse[i], expected.lse[i], 1e-12);
      runOn(c, narrow, false, threads);
      EXPECT_LT(relativeError(narrow.o, expected.o), 3e-6);
    }
  }
}

// All scores are equal, so sums of ones count the weights that are not dropped.
TEST(Attention, DropsAShareOfWeights) {
  for (double p : {0.1, 0.5}) {
    Case c{2, 40, 1000, 2, 2, 4, 1};
    c.dropout = p;
    Data<double> data(c);
    std::fill(data.q.begin(), data.q.end(), 0);
    std::fill(data.v.begin(), data.v.end(), 1);
    runOn(c, data, false);
    double mean = 0;
    for (double o : data.o)
      mean += o / double(data.o.size());
    double weights = 320 * 1000; // six standard deviations
    EXPECT_NEAR(mean, 1, 6 * std::sqrt(p / (1 - p) / weights));
    // Rows, heads and samples have different masks.
    std::sort(data.o.begin(), data.o.end());
    double spread = data.o.back() - data.o.front();
    EXPECT_GT(spread, 2 * std::sqrt(p / (1 - p) / 1000));
    EXPECT_LT(spread, 12 * std::sqrt(p / (1 - p) / 1000));
  }
}

// d loss / d x with loss = sum(o * dO), by central differences.
double difference(const Case &c, Data<double> &data, double &x) {
  constexpr double step = 1e-5;
  auto loss = [&] {
    naive(c, data);
    double sum = 0;
    for (size_t i = 0; i < data.o.size(); ++i)
      sum += data.o[i] * data.dO[i];
    return sum;
  };
  double saved = x;
  x = saved + step;
  double high = loss();
  x = saved - step;
  double low = loss();
  x = saved;
  return (high - low) / (2 * step);
}

void expectZeroRows(const Case &c, const Data<double> &data) {
  Attention x = describe(c, DType::F64, true);
  auto isZero = [&](const std::vector<double> &values, const AttentionRef &ref,
                    int64_t b, int64_t s, int64_t width) {
    for (int64_t n = 0; n < c.n; ++n)
      for (int64_t f = 0; f < width; ++f)
        if (values[b * ref.strides[0] + s * ref.strides[1] +
                   n * ref.strides[2] + f * ref.strides[4]] != 0)
          return false;
    return true;
  };
  for (int64_t b = 0; b < c.b; ++b) {
    std::vector<bool> sees(c.qLen), seen(c.kLen);
    for (int64_t i = 0; i < c.qLen; ++i)
      for (int64_t j = 0; j < c.kLen; ++j)
        if (isVisible(c, data, b, i, j))
          sees[i] = seen[j] = true;
    for (int64_t i = 0; i < c.qLen; ++i)
      if (!sees[i]) {
        EXPECT_TRUE(isZero(data.dq, x.dq, b, i, c.d)) << "query " << i;
        EXPECT_TRUE(isZero(data.o, x.o, b, i, c.dv)) << "query " << i;
        EXPECT_EQ(data.lse[b * c.n * c.g * c.qLen + i], -INFINITY);
      }
    for (int64_t j = 0; j < c.kLen; ++j)
      if (!seen[j]) {
        EXPECT_TRUE(isZero(data.dk, x.dk, b, j, c.d)) << "key " << j;
        EXPECT_TRUE(isZero(data.dV, x.dV, b, j, c.dv)) << "key " << j;
      }
  }
}

TEST(Attention, BackwardMatchesDifferences) {
  for (const Case &c : cases()) {
    // The naive loops are slow, and the larger cases run no other code paths.
    if (c.qLen > 130 || (c.qLen == 49 && c.headsFirst))
      continue;
    SCOPED_TRACE(c.text());
    Data<double> data(c);
    spoilHidden(c, data);
    runOn(c, data, false);
    runOn(c, data, true, 2);
    Data<double> probe(c);
    std::mt19937 engine(9);
    for (auto [values, gradient] :
         {std::pair{&probe.q, &data.dq}, std::pair{&probe.k, &data.dk},
          std::pair{&probe.v, &data.dV}}) {
      for (double g : *gradient)
        ASSERT_TRUE(std::isfinite(g));
      for (int sample = 0; sample < (test::triesAll() ? 3 : 1); ++sample) {
        size_t i = engine() % values->size();
        EXPECT_NEAR((*gradient)[i], difference(c, probe, (*values)[i]), 2e-8);
      }
    }
    // Queries that see no key, and keys that no query sees, have zero
    // gradients.
    expectZeroRows(c, data);
    // The float version agrees with the double one.
    Data<float> narrow(c);
    spoilHidden(c, narrow);
    runOn(c, narrow, false);
    runOn(c, narrow, true);
    EXPECT_LT(relativeError(narrow.dq, data.dq), 1e-5);
    EXPECT_LT(relativeError(narrow.dk, data.dk), 1e-5);
    EXPECT_LT(relativeError(narrow.dV, data.dV), 1e-5);
  }
}

TEST(Attention, ThreadsDoNotChangeTheResult) {
  Case c{2, 100, 100, 3, 2, 16, 16, true};
  Data<float> one(c), four(c);
  runOn(c, one, false, 1);
  runOn(c, four, false, 4);
  EXPECT_EQ(one.o, four.o);
  runOn(c, one, true, 1);
  runOn(c, four, true, 4);
  EXPECT_EQ(one.dq, four.dq);
  EXPECT_EQ(one.dk, four.dk);
  EXPECT_EQ(one.dV, four.dV);
}

TEST(Attention, WorkspaceGrowsLinearlyInTheSequence) {
  auto bytes = [](int64_t length, bool backward) {
    Case c{1, length, length, 2, 4, 16, 16, true};
    std::string error;
    return attentionWorkspace(describe(c, DType::F32, backward), 1, error);
  };
  // A few numbers per block of 48 queries or 96 keys.
  EXPECT_LE(bytes(4096, false) - bytes(256, false), 4096 * 2);
  EXPECT_LE(bytes(4096, true) - bytes(1024, true), 3072 * (2 * 4 * 4 + 2));
}

// The number of 48 x 96 blocks computed in the forward pass, from the operation
// count.
double blocksComputed(const Case &c) {
  Data<float> data(c);
  int64_t forward = runOn(c, data, false), backward = runOn(c, data, true);
  double perScore = 2.0 * (c.d + c.dv);
  EXPECT_EQ(backward * perScore, forward * (6.0 * c.d + 4.0 * c.dv));
  return forward / perScore / (48 * 96);
}

TEST(Attention, ComputesTheBlocksThatAreSeen) {
  int64_t length = 24 * 96; // 48 blocks of queries, 24 of keys
  Case c{1, length, length, 1, 1, 4, 4};
  EXPECT_EQ(blocksComputed(c), 48 * 24);
  // Each block of 48 queries needs the keys up to its last query: half a key
  // block more each time.
  c.causal = true;
  EXPECT_EQ(blocksComputed(c), 0.5 * 48 * 49 / 2);
  // With the window, keys start 96 before the block's first query.
  c.window = 97;
  EXPECT_EQ(blocksComputed(c), 46 * 1.5 + 0.5 + 1);
  // Without causality, up to 96 keys after the block's last query.
  c.causal = false;
  EXPECT_EQ(blocksComputed(c), 44 * 2.5 + 2 * 1.5 + 2 * 2);
  // Ranks of a ring have two pieces each: all have equal work.
  c.window = 0;
  c.causal = true;
  c.positions = Case::ZigZag;
  double all = 0, low = 1e9, high = 0;
  for (c.queryPiece = 0; c.queryPiece < 4; ++c.queryPiece) {
    double sum = 0;
    for (c.keyPiece = 0; c.keyPiece < 4; ++c.keyPiece)
      sum += blocksComputed(c);
    low = std::min(low, sum);
    high = std::max(high, sum);
    all += sum;
  }
  EXPECT_LE(high / low, 1.02);
  // Half of all pairs, and the diagonal.
  EXPECT_NEAR(all / (16 * 48 * 24), 0.5, 0.01);
}

TEST(Attention, ComputesDocumentsAlone) {
  Case c{1, 4800, 4800, 1, 1, 4, 4};
  c.segments = true; // documents of 50 tokens
  // A block of keys meets its own documents and those of its neighbours.
  EXPECT_LE(blocksComputed(c), 100 * 3);
  c.causal = true;
  EXPECT_LE(blocksComputed(c), 100 * 2);
}

// Reads and writes bf16, computes in f32; compared with f64 on the same
// numbers. The log-sum-exp and the bias are f32.
TEST(Attention, Bf16) {
  for (const Case &c : cases()) {
    SCOPED_TRACE(c.text());
    Data<double> wide(c);
    for (auto *values : {&wide.q, &wide.k, &wide.v, &wide.dO})
      *values = roundedToBf16(*values);
    auto q = toBf16(wide.q), k = toBf16(wide.k), v = toBf16(wide.v),
         dO = toBf16(wide.dO);
    runOn(c, wide, false);
    std::vector<uint16_t> o(wide.o.size()), dq(q.size()), dk(k.size()),
        dV(v.size());
    std::vector<float> lse(wide.lse.size());
    std::vector<float> bias(wide.bias.begin(), wide.bias.end());
    auto run = [&](bool backward, int threads) {
      Attention x = describe(c, DType::BF16, backward);
      std::string error;
      int64_t bytes = attentionWorkspace(x, threads, error);
      EXPECT_GE(bytes, 0) << error;
      Aligned<char> workspace(bytes);
      std::fill_n(workspace.data.get(), bytes, char(0xff)); // NaNs
      AttentionBuffers at;
      at.q = q.data(), at.k = k.data(), at.v = v.data();
      at.o = o.data(), at.lse = lse.data(), at.dO = dO.data();
      at.dq = dq.data(), at.dk = dk.data(), at.dV = dV.data();
      if (c.bias)
        at.bias = bias.data();
      if (c.keyMask)
        at.keyMask = wide.keep.data();
      if (c.positions != Case::Default) {
        at.queryPositions = wide.queryPositions.data();
        at.keyPositions = wide.keyPositions.data();
      }
      if (c.segments) {
        at.querySegments = wide.querySegments.data();
        at.keySegments = wide.keySegments.data();
      }
      if (c.dropout != 0) {
        at.dropoutKeys = wide.dropoutKeys.data();
        at.queryIndices = wide.queryIndices.data();
        at.keyIndices = wide.keyIndices.data();
      }
      at.workspace = workspace.data.get();
      makeAttention(x, at, threads)();
    };
    run(false, 3);
    EXPECT_LT(relativeError(fromBf16(o), wide.o), halfUlp);
    for (size_t i = 0; i < lse.size(); ++i)
      if (!std::isinf(wide.lse[i]))
        EXPECT_NEAR(lse[i], wide.lse[i], 2e-5);
    // The backward pass reads the stored (rounded) results.
    wide.o = fromBf16(o);
    wide.lse.assign(lse.begin(), lse.end());
    runOn(c, wide, true);
    run(true, 3);
    auto once = std::tuple(dq, dk, dV);
    EXPECT_LT(relativeError(fromBf16(dq), wide.dq), 2 * halfUlp);
    EXPECT_LT(relativeError(fromBf16(dk), wide.dk), 2 * halfUlp);
    EXPECT_LT(relativeError(fromBf16(dV), wide.dV), 2 * halfUlp);
    run(true, 1);
    EXPECT_EQ(std::tuple(dq, dk, dV), once);
  }
}

TEST(Attention, RefusesOtherTypes) {
  std::string error;
  Case c;
  EXPECT_EQ(attentionWorkspace(describe(c, DType::I32, false), 1, error), -1);
  EXPECT_NE(error.find("i32"), std::string::npos) << error;
}
} // namespace
