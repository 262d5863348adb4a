// Checks attention and its gradient: causal and not causal, windows, shared KV
// heads, positions, segments, masks, a bias, dropout, and scores with a soft
// cap; and attention by cuDNN for the cases that cuDNN supports.

#include "attention.h"

#include "cleave/workspace.h"
#include "dnn.h"
#include "error.h"

#include <algorithm>
#include <array>
#include <cstdio>

using namespace cleave;
using namespace cleave::gpu;
using program::Attention;
using program::AttentionRef;
using program::IndexRef;

namespace {
// Layouts of the arrays. Dense: features are contiguous in whole vectors, as
// the kernels on matrix units need them. Dnn: dense, and as cuDNN needs them.
// Any: random strides.
enum class Layout { Dense, Dnn, Any };

// Returns strides of [batch, position, head, group, feature]. In memory, the
// dimensions are in this order, or heads and groups come before positions.
// Layout::Any has random strides.
std::vector<int64_t> stridesOf(Case &one, const std::array<int64_t, 5> &dims,
                               Layout layout, int64_t &count) {
  if (layout == Layout::Any)
    return randomStrides(one, {dims.begin(), dims.end()}, count);
  std::vector<int64_t> strides(5);
  // cuDNN takes lse, which has one feature per row, only densely packed with
  // the heads before the positions.
  bool headsFirst = one.one(2) || (layout == Layout::Dnn && dims[4] == 1);
  count = 1;
  for (int i :
       headsFirst ? std::array{4, 1, 3, 2, 0} : std::array{4, 3, 2, 1, 0}) {
    strides[i] = count;
    count *= dims[i];
  }
  return strides;
}

// Restricts the masks to those that cuDNN supports: causal diagonals that begin
// at the first key or end at the last key, windows along a diagonal that begins
// at the first key, and masks that hide nothing.
void keepToDnn(Case &one, Attention &x) {
  x.softcap = 0;
  x.qLen = std::max<int64_t>(x.qLen, 2), x.kLen = std::max<int64_t>(x.kLen, 2);
  if (one.isSmall)
    x.b = one.between(1, 2), x.n = one.between(1, 2);
  x.queryOffset = x.keyOffset = one.below(3);
  bool hasWindow = x.causal && one.one(2);
  if (hasWindow && x.qLen > x.kLen)
    std::swap(x.qLen, x.kLen);
  // A window of qLen - 1 positions hides only one key from one query. A faulty
  // kernel easily ignores such a window, so a third of the random windows have
  // this size.
  x.window = hasWindow    ? one.one(3) ? x.qLen - 1 : one.between(1, x.qLen)
             : one.one(3) ? 100000
                          : 0;
  if (!x.causal)
    x.queryOffset = one.below(50);
  else if (!hasWindow && one.one(3))
    x.queryOffset += x.kLen - 1 + one.below(3); // all are seen
  else if (!hasWindow && x.qLen <= x.kLen && one.one(2))
    x.queryOffset += x.kLen - x.qLen;
}

Attention sizesOf(Case &one, DType type, Layout layout, int64_t leastHead,
                  int64_t mostHead) {
  Attention x;
  x.dtype = type;
  int64_t most = one.isSmall ? 70 : 300;
  x.b = one.between(1, 2), x.n = one.between(1, 2), x.g = one.between(1, 3);
  x.qLen = one.length(most), x.kLen = one.length(most);
  if (one.isSmall)
    x.b = x.n = 1, x.g = one.between(1, 2);
  int64_t unit = layout == Layout::Any ? 1 : 8;
  auto head = [&] {
    return one.one(2) ? std::min(32 * one.between(1, 4), mostHead)
                      : one.between(leastHead / unit, mostHead / unit) * unit;
  };
  x.d = head(), x.dv = one.one(2) ? x.d : head();
  x.scale = 1 / std::sqrt(double(x.d));
  x.causal = one.one(2);
  x.window = one.one(3) ? one.between(1, x.kLen) : 0;
  x.queryOffset = one.one(3) ? one.below(x.kLen) : 0;
  x.keyOffset = one.one(4) ? one.below(x.qLen) : 0;
  x.softcap = one.one(3) ? 1.5 : 0;
  if (layout == Layout::Dnn)
    keepToDnn(one, x);
  one.say("b", x.b), one.say("n", x.n), one.say("g", x.g);
  one.say("queries", x.qLen), one.say("keys", x.kLen);
  one.say("d", x.d), one.say("dv", x.dv);
  one.say("causal", x.causal), one.say("window", x.window);
  one.say("offsets", {x.queryOffset, x.keyOffset});
  one.say("softcap", x.softcap > 0);
  return x;
}

void addIndices(Case &one, AttentionArrays &in) {
  Attention &x = in.x;
  auto make = [&](IndexRef &ref, Array &array, DType type, int64_t length,
                  bool isShared, auto value) {
    ref.buffer.arena = 0;
    ref.strides = {isShared ? 0 : length, 1};
    int64_t samples = isShared ? 1 : x.b;
    array = Array(type, samples * length);
    for (int64_t i = 0; i < samples * length; ++i)
      array.set(i, double(value(i / length, i % length)));
  };
  if (one.one(3)) {
    bool isShared = one.one(2);
    one.say("positions", isShared);
    int64_t step = one.one(2) ? 1 : 7; // in order, or mixed
    make(x.queryPositions, in.queryPositions, DType::I64, x.qLen, isShared,
         [&](int64_t, int64_t i) { return i * step % x.qLen + x.qLen / 2; });
    make(x.keyPositions, in.keyPositions, DType::I64, x.kLen, isShared,
         [&](int64_t, int64_t i) { return i * step % x.kLen; });
  }
  if (one.one(3)) {
    int64_t piece = one.between(5, 80);
    one.say("segments of", piece);
    auto segment = [&](int64_t b, int64_t i) { return (i + 7 * b) / piece; };
    make(x.querySegments, in.querySegments, DType::I64, x.qLen, false, segment);
    make(x.keySegments, in.keySegments, DType::I64, x.kLen, false, segment);
  }
  if (one.one(3)) {
    one.say("mask");
    make(x.keyMask, in.keyMask, DType::U8, x.kLen, false,
         [&](int64_t, int64_t) { return !one.one(3); });
  }
  if (one.one(2)) {
    x.dropout = one.one(2) ? 0.1 : 0.5;
    one.say("half dropped", x.dropout == 0.5);
    x.dropoutKeys.buffer.arena = 0;
    x.dropoutKeys.strides = {x.n * x.g, 0, x.g, 1, 0};
    in.dropoutKeys = Array(DType::I64, x.b * x.n * x.g);
    for (int64_t i = 0; i < x.b * x.n * x.g; ++i)
      in.dropoutKeys.set(i, double(one.below(int64_t(1) << 53)));
    // The indices are first, first + step, first + 2 * step, and so on. With
    // step 1, four of them may share a block of random words; with step 7, they
    // do not. `first` may or may not be a multiple of four.
    int64_t first = one.below(9), step = one.one(3) ? 7 : 1;
    auto index = [&](int64_t, int64_t i) { return first + i * step; };
    make(x.queryIndices, in.queryIndices, DType::I64, x.qLen, true, index);
    make(x.keyIndices, in.keyIndices, DType::I64, x.kLen, true, index);
  }
}

// Sets the keys and values that the mask hides to NaN.
void spoilHidden(AttentionArrays &in) {
  const Attention &x = in.x;
  if (!x.keyMask.buffer.present())
    return;
  auto spoil = [&](Array &array, const AttentionRef &ref, int64_t width,
                   int64_t b, int64_t j) {
    for (int64_t n = 0; n < x.n; ++n)
      for (int64_t f = 0; f < width; ++f)
        array.set(b * ref.strides[0] + j * ref.strides[1] + n * ref.strides[2] +
                      f * ref.strides[4],
                  NAN);
  };
  for (int64_t b = 0; b < x.b; ++b)
    for (int64_t j = 0; j < x.kLen; ++j)
      if (!in.keyMask.at(b * x.kLen + j)) {
        spoil(in.k, x.k, x.d, b, j);
        spoil(in.v, x.v, x.dv, b, j);
      }
}

AttentionArrays arraysOf(Case &one, const Attention &sizes, Layout layout) {
  AttentionArrays in;
  in.x = sizes;
  Attention &x = in.x;
  DType wide = x.dtype == DType::F64 ? DType::F64 : DType::F32;
  auto place = [&](AttentionRef &ref, std::array<int64_t, 5> dims, DType type) {
    int64_t count = 0;
    std::vector<int64_t> strides = stridesOf(one, dims, layout, count);
    std::copy(strides.begin(), strides.end(), ref.strides.begin());
    return Array(type, count);
  };
  in.q = place(x.q, {x.b, x.qLen, x.n, x.g, x.d}, x.dtype);
  in.k = place(x.k, {x.b, x.kLen, x.n, 1, x.d}, x.dtype);
  in.v = place(x.v, {x.b, x.kLen, x.n, 1, x.dv}, x.dtype);
  in.o = place(x.o, {x.b, x.qLen, x.n, x.g, x.dv}, x.dtype);
  in.lse = place(x.lse, {x.b, x.qLen, x.n, x.g, 1}, wide);
  in.dO = place(x.dO, {x.b, x.qLen, x.n, x.g, x.dv}, x.dtype);
  in.dq = place(x.dq, {x.b, x.qLen, x.n, x.g, x.d}, x.dtype);
  in.dk = place(x.dk, {x.b, x.kLen, x.n, 1, x.d}, x.dtype);
  in.dV = place(x.dV, {x.b, x.kLen, x.n, 1, x.dv}, x.dtype);
  for (Array *array : {&in.q, &in.k, &in.v, &in.dO})
    array->randomize(one);
  if (layout == Layout::Dnn)
    return in;
  if (one.one(3)) {
    one.say("bias");
    x.bias.buffer.arena = 0;
    in.bias = place(x.bias, {1, x.qLen, x.n, x.g, x.kLen}, wide);
    x.bias.strides[0] = 0;
    in.bias.randomize(one);
  }
  addIndices(one, in);
  spoilHidden(in);
  return in;
}

// Checks the forward pass, or the backward pass on the forward results of the
// reference.
void checkAttention(Case &one, const Attention &sizes, Layout layout,
                    bool backward) {
  AttentionArrays in = arraysOf(one, sizes, layout);
  AttentionResults want = referenceAttention(in);
  if (backward) {
    auto keep = [](Array &array, const std::vector<Expected> &values) {
      for (size_t i = 0; i < values.size(); ++i)
        if (values[i].isWritten)
          array.set(int64_t(i), values[i].value);
    };
    keep(in.o, want.o), keep(in.lse, want.lse);
    in.x.backward = true;
    want = referenceAttention(in);
  }
  AttentionBuffers at;
  auto put = [&](auto &to, Array &array) {
    if (array.size())
      to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(
          array.upload(one.stream));
  };
  put(at.q, in.q), put(at.k, in.k), put(at.v, in.v);
  put(at.o, in.o), put(at.lse, in.lse);
  put(at.bias, in.bias), put(at.keyMask, in.keyMask);
  put(at.queryPositions, in.queryPositions);
  put(at.keyPositions, in.keyPositions);
  put(at.querySegments, in.querySegments);
  put(at.keySegments, in.keySegments);
  put(at.dropoutKeys, in.dropoutKeys);
  put(at.queryIndices, in.queryIndices), put(at.keyIndices, in.keyIndices);
  if (backward) {
    put(at.dO, in.dO);
    put(at.dq, in.dq), put(at.dk, in.dk), put(at.dV, in.dV);
  }
  std::string error;
  int64_t bytes = cuda::attentionWorkspace(in.x, error);
  if (bytes < 0)
    fail(CLEAVE_INTERNAL, error);
  // cuDNN plans need the workspace aligned to 64 bytes.
  cuda::DeviceMemory workspace(bytes + 64, "workspace");
  at.workspace = workspace.data() + 64;
  if (layout == Layout::Dnn) {
    std::string why;
    // The test varies the limit of the workspace, `enough`, between all and a
    // quarter of the `bytes` that the runtime plans. If the limit is too small
    // for all samples and heads at once, attention is divided into parts that
    // cuDNN computes one after the other.
    int64_t enough = bytes / one.between(1, 4);
    if (auto cut = cuda::cutOf(in.x, why, enough))
      one.say("parts", in.x.b * in.x.n / (cut->batch * cut->heads));
    cuda::Enqueue enqueue =
        cuda::makeDnnAttention(one.device, in.x, at, why, enough);
    if (!enqueue) {
      one.refusal = "cuDNN does not do it: " + why;
      return;
    }
    one.run(enqueue);
  } else {
    one.run(cuda::makeAttention(one.kernels, in.x, at));
  }

  const Limit &limit = in.x.dtype != DType::BF16 ? limitOf(in.x.dtype)
                       : layout == Layout::Dnn && in.x.g > 1 ? limitBf16Heads
                                                             : limitBf16Weights;
  auto compare = [&](const char *what, Array &array,
                     const std::vector<Expected> &values, const Limit &limit) {
    array.download(one.stream);
    one.compare(what, array, values, limit);
  };
  if (backward) {
    compare("dq", in.dq, want.dq, limit);
    compare("dk", in.dk, want.dk, limit);
    compare("dv", in.dV, want.dV, limit);
  } else {
    compare("o", in.o, want.o, limit);
    compare("lse", in.lse, want.lse, limitOf(in.lse.type));
  }
}

template <DType type, Layout layout, bool backward> void check(Case &one) {
  // There are kernels for heads of up to 64, 128 and 256 features.
  int64_t most = one.isSmall ? 64 : 128;
  if (layout == Layout::Any && !one.isSmall && one.one(8))
    most = 256;
  checkAttention(one, sizesOf(one, type, layout, 8, most), layout, backward);
}

template <DType type, Layout layout>
void add(std::vector<Family> &to, const std::string &name) {
  to.push_back({"attention, " + name, check<type, layout, false>, 32, 12});
  to.push_back(
      {"attention backward, " + name, check<type, layout, true>, 32, 12});
}
} // namespace

void gpu::addAttentionFamilies(cuda::Device &device, std::vector<Family> &to) {
  add<DType::F32, Layout::Any>(to, "f32");
  add<DType::F64, Layout::Any>(to, "f64");
  add<DType::BF16, Layout::Any>(to, "bf16, any strides");
  add<DType::BF16, Layout::Dense>(to, "bf16, matrix units");
  std::string why;
  if (cuda::hasDnn(device, why))
    add<DType::BF16, Layout::Dnn>(to, "bf16, cuDNN");
  else
    std::printf("no attention by cuDNN: %s\n", why.c_str());
}
