// Compares attention on a device with attention on the CPU, at random layouts,
// masks and sizes. Keys and values that the mask hides are NaN.

#include "cpu/attention.h"
#include "Arrays.h"
#include "TinyDriver.h"

#include "cleave/workspace.h"

using namespace cleave;
using namespace cleave::program;
using namespace cleave::test;

namespace {
struct Case {
  DType type = DType::F32;
  int64_t b = 1, qLen = 1, kLen = 1, n = 1, g = 1, d = 1, dv = 1;
  bool causal = false;
  int64_t window = 0, queryOffset = 0, keyOffset = 0;
  double softcap = 0;
  bool bias = false, mask = false, segments = false;
  enum { Counted, Shuffled, ZigZag } positions = Counted;
  bool isDense = false; // features side by side
  double dropout = 0;

  std::string text() const {
    return std::string(nameOf(type)) + ", " + std::to_string(b) + " x " +
           std::to_string(n) + " x " + std::to_string(g) + " heads of " +
           std::to_string(d) + " and " + std::to_string(dv) + ", " +
           std::to_string(qLen) + " queries, " + std::to_string(kLen) +
           " keys, causal " + std::to_string(causal) + ", window " +
           std::to_string(window) + ", offsets " + std::to_string(queryOffset) +
           " " + std::to_string(keyOffset) + ", softcap " +
           std::to_string(softcap) + ", bias " + std::to_string(bias) +
           ", mask " + std::to_string(mask) + ", segments " +
           std::to_string(segments) + ", positions " +
           std::to_string(positions) + ", dropout " + std::to_string(dropout);
  }
};

struct Inputs {
  Attention x;
  Array q, k, v, dO, bias;
  std::vector<uint8_t> mask;
  std::vector<int64_t> queryPositions, keyPositions, querySegments, keySegments;
  std::vector<int64_t> dropoutKeys, queryIndices, keyIndices;
};
struct Outputs {
  Array o, lse, dq, dk, dV;
};

// Draws the layouts and values of a random case.
class InputMaker {
public:
  InputMaker(std::mt19937 &engine, const Case &c) : engine(engine), c(c) {}

  Inputs make(Outputs &out) {
    describe();
    placeTensors(out);
    if (c.bias)
      addBias();
    if (c.mask)
      addMask();
    if (c.positions != Case::Counted)
      addPositions();
    if (c.segments)
      addSegments();
    if (c.dropout != 0)
      addDropout();
    return std::move(in);
  }

private:
  void describe() {
    x.dtype = c.type;
    x.b = c.b, x.qLen = c.qLen, x.kLen = c.kLen, x.n = c.n, x.g = c.g;
    x.d = c.d, x.dv = c.dv;
    x.scale = 1 / std::sqrt(double(c.d));
    x.softcap = c.softcap;
    x.causal = c.causal, x.window = c.window;
    x.queryOffset = c.queryOffset, x.keyOffset = c.keyOffset;
  }

  Array place(AttentionRef &ref, std::array<int64_t, 5> dims, DType type) {
    int64_t count = 0;
    std::vector<int64_t> strides;
    if (c.isDense) {
      count = 1;
      strides.resize(5);
      for (int i = 5; i-- > 0; count *= dims[i])
        strides[i] = count;
    } else {
      strides = randomStrides(engine, {dims.begin(), dims.end()}, count);
    }
    std::copy(strides.begin(), strides.end(), ref.strides.begin());
    return Array(type, count);
  }

  void placeTensors(Outputs &out) {
    in.q = place(x.q, {c.b, c.qLen, c.n, c.g, c.d}, c.type);
    in.k = place(x.k, {c.b, c.kLen, c.n, 1, c.d}, c.type);
    in.v = place(x.v, {c.b, c.kLen, c.n, 1, c.dv}, c.type);
    in.dO = place(x.dO, {c.b, c.qLen, c.n, c.g, c.dv}, c.type);
    out.o = place(x.o, {c.b, c.qLen, c.n, c.g, c.dv}, c.type);
    out.lse = place(x.lse, {c.b, c.qLen, c.n, c.g, 1}, wide);
    out.dq = place(x.dq, {c.b, c.qLen, c.n, c.g, c.d}, c.type);
    out.dk = place(x.dk, {c.b, c.kLen, c.n, 1, c.d}, c.type);
    out.dV = place(x.dV, {c.b, c.kLen, c.n, 1, c.dv}, c.type);
    x.k.strides[3] = x.v.strides[3] = x.dk.strides[3] = x.dV.strides[3] = 777;
    in.q.fill(1), in.k.fill(2), in.v.fill(3), in.dO.fill(4);
  }

  void addBias() {
    x.bias.buffer.arena = 0;
    in.bias = place(x.bias, {1, c.qLen, c.n, c.g, c.kLen}, wide);
    x.bias.strides[0] = 0;
    in.bias.fill(5);
  }

  void index(IndexRef &ref, int64_t length, bool isShared) {
    ref.buffer.arena = 0;
    ref.strides = {isShared ? 0 : length, 1};
  }

  // Sets a key and its value to NaN.
  void spoil(int64_t b, int64_t j) {
    auto fill = [&](Array &array, const AttentionRef &ref, int64_t n,
                    int64_t width) {
      for (int64_t f = 0; f < width; ++f)
        array.set(b * ref.strides[0] + j * ref.strides[1] + n * ref.strides[2] +
                      f * ref.strides[4],
                  NAN);
    };
    for (int64_t n = 0; n < c.n; ++n) {
      fill(in.k, x.k, n, c.d);
      fill(in.v, x.v, n, c.dv);
    }
  }

  void addMask() {
    index(x.keyMask, c.kLen, false);
    for (int64_t i = 0; i < c.b * c.kLen; ++i) {
      in.mask.push_back(engine() % 3 != 0);
      if (!in.mask.back())
        spoil(i / c.kLen, i % c.kLen);
    }
  }

  void addPositions() {
    bool isShared = c.positions == Case::ZigZag;
    index(x.queryPositions, c.qLen, isShared);
    index(x.keyPositions, c.kLen, isShared);
    auto fill = [&](std::vector<int64_t> &at, int64_t length, int64_t piece) {
      for (int64_t i = 0; i < c.b * length; ++i)
        at.push_back(isShared ? (i < length / 2 ? piece * length + i
                                                : (7 - piece) * length + i)
                              : i % length * 7 % length);
    };
    fill(in.queryPositions, c.qLen, 1);
    fill(in.keyPositions, c.kLen, 2);
  }

  void addSegments() {
    index(x.querySegments, c.qLen, false);
    index(x.keySegments, c.kLen, false);
    for (int64_t i = 0; i < c.b * c.qLen; ++i)
      in.querySegments.push_back((i % c.qLen + 7 * (i / c.qLen)) / 30);
    for (int64_t i = 0; i < c.b * c.kLen; ++i)
      in.keySegments.push_back((i % c.kLen + 9 * (i / c.kLen)) / 30);
  }

  void addDropout() {
    x.dropout = c.dropout;
    x.dropoutKeys.buffer.arena = 0;
    x.dropoutKeys.strides = {1, 0, c.g * c.b, c.b, 0};
    for (int64_t i = 0; i < c.b * c.n * c.g; ++i)
      in.dropoutKeys.push_back(int64_t(uint64_t(engine()) << 32 | engine()));
    index(x.queryIndices, c.qLen, true);
    index(x.keyIndices, c.kLen, true);
    // The key indices are first, first + step, first + 2 * step, and so on.
    // With step 1, four of them may share a block of random words; with step 7,
    // they do not. `first` may or may not be a multiple of four.
    int64_t first = engine() % 3 ? int64_t(engine() % 100) : 0;
    int64_t step = engine() % 3 ? 1 : 7;
    for (int64_t i = 0; i < c.qLen; ++i)
      in.queryIndices.push_back(first + i);
    for (int64_t j = 0; j < c.kLen; ++j)
      in.keyIndices.push_back(first + j * step);
  }

  std::mt19937 &engine;
  const Case &c;
  const DType wide = c.type == DType::F64 ? DType::F64 : DType::F32;
  Inputs in;
  Attention &x = in.x;
};

Inputs inputsOf(std::mt19937 &engine, const Case &c, Outputs &out) {
  return InputMaker(engine, c).make(out);
}

AttentionBuffers buffersOf(Inputs &in, Outputs &out) {
  AttentionBuffers at;
  at.q = in.q.data(), at.k = in.k.data(), at.v = in.v.data();
  at.dO = in.dO.data();
  at.o = out.o.data(), at.lse = out.lse.data();
  at.dq = out.dq.data(), at.dk = out.dk.data(), at.dV = out.dV.data();
  auto optional = [](const auto &values) {
    return values.empty() ? nullptr : values.data();
  };
  at.bias = in.bias.bytes.empty() ? nullptr : in.bias.data();
  at.keyMask = optional(in.mask);
  at.queryPositions = optional(in.queryPositions);
  at.keyPositions = optional(in.keyPositions);
  at.querySegments = optional(in.querySegments);
  at.keySegments = optional(in.keySegments);
  at.dropoutKeys = optional(in.dropoutKeys);
  at.queryIndices = optional(in.queryIndices);
  at.keyIndices = optional(in.keyIndices);
  return at;
}

void expectAttention(std::mt19937 &engine, const Case &c,
                     bool inBothOrders = false) {
  Outputs want;
  Inputs in = inputsOf(engine, c, want);
  Outputs got = want;
  double tolerance = c.type == DType::F64    ? 1e-12
                     : c.type == DType::BF16 ? 2 * halfUlp
                                             : 1e-5;
  // Dropout divides terms by 1 - p, which makes their rounding errors larger.
  // Where terms cancel, these errors remain.
  if (c.dropout != 0 && c.type != DType::BF16)
    tolerance *= 5;
  std::string error;
  for (bool backward : {false, true}) {
    in.x.backward = backward;
    Aligned<char> workspace(attentionWorkspace(in.x, 1, error));
    int64_t bytes = cuda::attentionWorkspace(in.x, error);
    Aligned<char> scratch(bytes);
    std::fill_n(scratch.data.get(), bytes, char(0xff));
    AttentionBuffers at = buffersOf(in, want);
    at.workspace = workspace.data.get();
    makeAttention(in.x, at, 1)();
    if (backward)
      got.o = want.o, got.lse = want.lse; // the same rounding
    at = buffersOf(in, got);
    at.workspace = scratch.data.get();
    cuda::Enqueue enqueue = cuda::makeAttention(kernels(), in.x, at);
    auto run = [&] { enqueue(nullptr); };
    if (inBothOrders)
      runInBothOrders(run, [&] {
        return bytesOf(got.o.bytes) + bytesOf(got.lse.bytes) +
               bytesOf(got.dq.bytes) + bytesOf(got.dk.bytes) +
               bytesOf(got.dV.bytes);
      });
    else
      run();
    auto close = [&](Array &a, Array &b, const char *what) {
      EXPECT_LE(difference(a, b, 0.1), tolerance)
          << what << (backward ? ", backward: " : ": ") << c.text();
    };
    if (!backward) {
      close(got.o, want.o, "o");
      // Rows in which no key is visible have a log-sum-exp of -inf.
      std::vector<double> a = got.lse.values(), b = want.lse.values();
      for (size_t i = 0; i < a.size(); ++i)
        if (std::isinf(b[i]) || std::isnan(b[i])) {
          EXPECT_TRUE(std::isnan(b[i]) || a[i] == b[i]) << c.text();
          a[i] = b[i] = 0;
        }
      EXPECT_LE(relativeError(a, b), c.type == DType::F64 ? 1e-12 : 1e-5)
          << "lse: " << c.text();
    } else {
      close(got.dq, want.dq, "dq");
      close(got.dk, want.dk, "dk");
      close(got.dV, want.dV, "dV");
    }
  }
}

constexpr DType types[] = {DType::F32, DType::F64, DType::BF16};
} // namespace

TEST(CudaAttention, RandomCases) {
  std::mt19937 engine(1);
  for (DType type : types)
    for (int round = 0; round < 30; ++round) {
      auto one = [&](int64_t of) { return int64_t(engine() % of) == 0; };
      Case c;
      c.type = type;
      c.b = 1 + engine() % 2, c.n = 1 + engine() % 2, c.g = 1 + engine() % 2;
      c.qLen = 1 + engine() % 100, c.kLen = 1 + engine() % 150;
      c.d = 1 + engine() % 40, c.dv = one(2) ? c.d : 1 + engine() % 40;
      c.causal = one(2);
      c.window = one(3) ? 1 + engine() % 50 : 0;
      c.queryOffset = one(3) ? engine() % 100 : 0;
      c.keyOffset = one(3) ? engine() % 60 : 0;
      c.softcap = one(3) ? 1.5 : 0;
      c.bias = one(3), c.mask = one(3), c.segments = one(3);
      c.dropout = one(2) ? 0.3 : 0;
      c.positions = one(3)   ? Case::Shuffled
                    : one(3) ? Case::ZigZag
                             : Case::Counted;
      expectAttention(engine, c);
    }
}

TEST(CudaAttention, OnMatrixUnits) {
  std::mt19937 engine(5);
  for (int round = 0; round < 30; ++round) {
    auto one = [&](int64_t of) { return int64_t(engine() % of) == 0; };
    Case c;
    c.type = DType::BF16;
    c.isDense = true;
    c.b = 1 + engine() % 2, c.n = 1 + engine() % 2, c.g = 1 + engine() % 2;
    c.qLen = 1 + engine() % 150, c.kLen = 1 + engine() % 150;
    c.d = 8 * (1 + engine() % 8), c.dv = one(2) ? c.d : 8 * (1 + engine() % 10);
    c.causal = one(2);
    c.window = one(3) ? 1 + engine() % 50 : 0;
    c.queryOffset = one(3) ? engine() % 100 : 0;
    c.keyOffset = one(3) ? engine() % 60 : 0;
    c.softcap = one(3) ? 1.5 : 0;
    c.bias = one(3), c.mask = one(3), c.segments = one(3);
    c.dropout = one(2) ? 0.3 : 0;
    c.positions = one(3)   ? Case::Shuffled
                  : one(3) ? Case::ZigZag
                           : Case::Counted;
    takeLaunches();
    expectAttention(engine, c, round % 8 == 0);
    std::string name = "cleave_attention_";
    name += c.dropout != 0 ? "dropped_" : "";
    name += std::max(c.d, c.dv) <= 64 ? "bf16_64" : "bf16_128";
    EXPECT_EQ(takeLaunches()[0], name);
  }
}

TEST(CudaAttention, SizesOfHeads) {
  std::mt19937 engine(2);
  for (DType type : types)
    for (auto [d, dv] : {std::pair<int64_t, int64_t>{64, 64},
                         {65, 64},
                         {128, 96},
                         {64, 130},
                         {256, 256}}) {
      Case c;
      c.type = type;
      c.g = 2, c.qLen = 70, c.kLen = 90, c.d = d, c.dv = dv;
      c.causal = c.isDense = true;
      expectAttention(engine, c, d == 65);
      c.dropout = 0.6;
      expectAttention(engine, c, d == 128);
    }
}

TEST(CudaAttention, RowsThatSeeNothing) {
  std::mt19937 engine(3);
  for (DType type : types) {
    Case c;
    c.type = type;
    c.qLen = 140, c.kLen = 70, c.d = c.dv = 16;
    c.causal = true;
    c.keyOffset = 100; // the first 100 queries see nothing
    expectAttention(engine, c);
    c.dropout = 0.5;
    expectAttention(engine, c);
    c.keyOffset = 1000;
    expectAttention(engine, c);
    c.keyOffset = 0, c.queryOffset = 500, c.window = 3;
    expectAttention(engine, c);
    c.kLen = 0;
    expectAttention(engine, c);
  }
}

TEST(CudaAttention, DoesNotDependOnTheOrderOfThreads) {
  std::mt19937 engine(4);
  for (DType type : types) {
    Case c;
    c.type = type;
    c.b = 2, c.g = 2, c.qLen = 130, c.kLen = 150, c.d = 20, c.dv = 24;
    c.causal = c.mask = c.segments = c.bias = true;
    c.softcap = 2;
    expectAttention(engine, c, true);
  }
}

TEST(CudaAttention, SaysWhatADeviceCannotDo) {
  Attention x;
  x.b = x.qLen = x.kLen = x.n = 1;
  x.d = 300, x.dv = 8;
  std::string error;
  EXPECT_EQ(cuda::attentionWorkspace(x, error), -1);
  EXPECT_EQ(error, "attention with heads of 300 features; a device takes at "
                   "most 256");
}
