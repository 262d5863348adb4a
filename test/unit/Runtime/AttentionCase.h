// Cases of attention on the CPU: their parameters, their arrays, and functions
// that run them.

#ifndef CLEAVE_TEST_RUNTIME_ATTENTIONCASE_H
#define CLEAVE_TEST_RUNTIME_ATTENTIONCASE_H

#include "Helpers.h"

#include "cleave/workspace.h"
#include "cpu/attention.h"
#include "cpu/micro.h"

#include <algorithm>
#include <array>

namespace cleave::test {

struct AttentionCase {
  int64_t b = 1, qLen = 1, kLen = 1, n = 1, g = 1, d = 1, dv = 1;
  bool causal = false;
  int64_t queryOffset = 0, keyOffset = 0;
  // How positions are numbered. ZigZag: a sequence is cut into 2 * `pieces`
  // parts. A rank has two of them: part number i counted from the beginning,
  // and part number i counted from the end.
  enum Positions { Default, Shuffled, ZigZag } positions = Default;
  bool segments = false, keyMask = false, bias = false;
  int64_t window = 0;
  double softcap = 0;
  int64_t pieces = 4, queryPiece = 1, keyPiece = 2; // of ZigZag
  bool headsFirst =
      false; // memory order [b, n, g, s, d] instead of [b, s, n, g, d]
  double dropout = 0;

  std::string text() const;
};

program::Attention describe(const AttentionCase &c, program::DType dtype,
                            bool backward);

// Returns the positions of a rank's tokens in zig-zag order. The sequence is
// cut into 2 * `pieces` parts. The rank has part number `first` counted from
// the beginning, and part number `first` counted from the end.
std::vector<int64_t> zigZag(int64_t length, int64_t pieces, int64_t first);

template <class T> struct AttentionData {
  std::vector<T> q, k, v, o, lse, dO, dq, dk, dV, bias;
  std::vector<uint8_t> keep;
  std::vector<int64_t> queryPositions, keyPositions, querySegments, keySegments;
  std::vector<int64_t> dropoutKeys, queryIndices, keyIndices;

  explicit AttentionData(const AttentionCase &c) {
    fillTensors(c);
    std::mt19937 engine(6);
    for (int64_t i = 0; i < c.b * c.kLen; ++i)
      keep.push_back(engine() % 3 != 0);
    fillPositions(c);
    fillDropout(c);
    fillSegments(c);
  }

  bool isHidden(const AttentionCase &c, int64_t key) const {
    return c.keyMask && !keep[key];
  }

private:
  void fillTensors(const AttentionCase &c) {
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
  }
  void fillPositions(const AttentionCase &c) {
    if (c.positions == AttentionCase::ZigZag) {
      queryPositions = zigZag(c.qLen, c.pieces, c.queryPiece);
      keyPositions = zigZag(c.kLen, c.pieces, c.keyPiece);
    } else { // not increasing
      for (int64_t i = 0; i < c.b * c.qLen; ++i)
        queryPositions.push_back((i % c.qLen) * 7 % c.qLen);
      for (int64_t i = 0; i < c.b * c.kLen; ++i)
        keyPositions.push_back((i % c.kLen) * 5 % c.kLen);
    }
  }
  void fillDropout(const AttentionCase &c) {
    std::mt19937_64 words(7);
    for (int64_t i = 0; i < c.b * c.n * c.g; ++i)
      dropoutKeys.push_back(int64_t(words()));
    if (c.positions == AttentionCase::ZigZag) {
      queryIndices = queryPositions;
      keyIndices = keyPositions;
    } else { // of a later piece, at no multiple of four, or in another order
      int64_t step = c.positions == AttentionCase::Default ? 1 : 7;
      for (int64_t i = 0; i < c.qLen; ++i)
        queryIndices.push_back((int64_t(1) << 33) + 3 + i);
      for (int64_t j = 0; j < c.kLen; ++j)
        keyIndices.push_back((int64_t(1) << 33) + 2 + j * step % 1000);
    }
  }
  void fillSegments(const AttentionCase &c) {
    // Each sample has documents of other lengths.
    for (int64_t i = 0; i < c.qLen; ++i)
      for (int64_t b = 0; b < c.b; ++b)
        querySegments.push_back((i + 7 * b) / 50);
    for (int64_t j = 0; j < c.kLen; ++j)
      for (int64_t b = 0; b < c.b; ++b)
        keySegments.push_back((j + 9 * b) / 50);
  }
};

// Sets every key and value that the mask hides to NaN.
template <class T>
void spoilHidden(const AttentionCase &c, AttentionData<T> &data) {
  program::Attention x = describe(c, program::DType::F64, false);
  for (int64_t b = 0; b < c.b; ++b)
    for (int64_t j = 0; j < c.kLen; ++j)
      for (int64_t n = 0; n < c.n && data.isHidden(c, b * c.kLen + j); ++n) {
        auto spoil = [&](std::vector<T> &values,
                         const program::AttentionRef &ref, int64_t width) {
          for (int64_t f = 0; f < width; ++f)
            values[b * ref.strides[0] + j * ref.strides[1] +
                   n * ref.strides[2] + f * ref.strides[4]] = T(NAN);
        };
        spoil(data.k, x.k, c.d);
        spoil(data.v, x.v, c.dv);
      }
}

// Binds the arrays that hide keys and drop weights.
template <class T>
void bindMasks(const AttentionCase &c, AttentionData<T> &data,
               AttentionBuffers &at) {
  if (c.keyMask)
    at.keyMask = data.keep.data();
  if (c.positions != AttentionCase::Default) {
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
}

// Computes o and lse of `data`, or its gradients. Returns the number of
// floating-point operations that the runtime counted.
template <class T>
int64_t runOn(const AttentionCase &c, AttentionData<T> &data, bool backward,
              int threads = 1) {
  program::Attention x = describe(
      c, std::is_same_v<T, float> ? program::DType::F32 : program::DType::F64,
      backward);
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
  bindMasks(c, data, at);
  std::atomic<int64_t> flops = 0;
  at.flops = &flops;
  at.workspace = workspace.data.get();
  makeAttention(x, at, threads)();
  return flops;
}

} // namespace cleave::test

#endif // CLEAVE_TEST_RUNTIME_ATTENTIONCASE_H
