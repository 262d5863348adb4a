#include "AttentionCase.h"

using namespace cleave;
using namespace cleave::program;
using namespace cleave::test;

std::string AttentionCase::text() const {
  return std::to_string(qLen) + " queries, " + std::to_string(kLen) +
         " keys, causal " + std::to_string(causal) + ", positions " +
         std::to_string(positions) + ", segments " + std::to_string(segments) +
         ", key mask " + std::to_string(keyMask) + ", bias " +
         std::to_string(bias) + ", window " + std::to_string(window) +
         ", softcap " + std::to_string(softcap) + ", dropout " +
         std::to_string(dropout);
}

static std::array<int64_t, 5> stridesOf(const AttentionCase &c, int64_t length,
                                        int64_t groups, int64_t width) {
  int64_t heads = c.n * groups;
  if (c.headsFirst)
    return {heads * length * width, width, groups * length * width,
            length * width, 1};
  return {length * heads * width, heads * width, groups * width, width, 1};
}

Attention test::describe(const AttentionCase &c, DType dtype, bool backward) {
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
  if (c.positions != AttentionCase::Default) {
    bool shared = c.positions == AttentionCase::ZigZag;
    place(x.queryPositions, {shared ? 0 : c.qLen, 1});
    place(x.keyPositions, {shared ? 0 : c.kLen, 1});
  }
  if (c.dropout != 0) {
    x.dropout = c.dropout;
    place(x.dropoutKeys, {1, 0, c.g * c.b, c.b, 0}); // in memory [n, g, b]
    place(x.queryIndices, {0, 1});
    place(x.keyIndices, {0, 1});
  }
  if (c.segments) { // [b, s], in memory [s, b]
    place(x.querySegments, {1, c.b});
    place(x.keySegments, {1, c.b});
  }
  return x;
}

std::vector<int64_t> test::zigZag(int64_t length, int64_t pieces,
                                  int64_t first) {
  std::vector<int64_t> positions;
  int64_t half = length / 2, rest = length - half;
  for (int64_t i = 0; i < half; ++i)
    positions.push_back(first * rest + i);
  for (int64_t i = 0; i < rest; ++i)
    positions.push_back((2 * pieces - 1 - first) * rest + i);
  return positions;
}
