// Compares matrix products by cuBLASLt with those of the CPU kernels. cuBLASLt
// is simulated here: the simulated CUDA library refuses the calls that cuBLASLt
// refuses according to its documentation.

#include "Products.h"
#include "cpu/gemm.h"

#include <random>

using namespace cleave;
using namespace cleave::program;
using namespace cleave::test;

namespace {
class BlasTest : public Products {
protected:
  // Runs the product by cuBLASLt and on the CPU, with operands that begin
  // `shift` elements into each buffer.
  static Counts run(const Gemm &gemm, int64_t shift = 0) {
    int64_t size = sizeOf(gemm.dtype), wide = sizeOf(gemm.resultType());
    int64_t results = span(gemm, gemm.c, gemm.m, gemm.n);
    Operand a = make(gemm.dtype, span(gemm, gemm.a, gemm.m, gemm.k), shift, 1);
    Operand b = make(gemm.dtype, span(gemm, gemm.b, gemm.k, gemm.n), shift, 2);
    Operand c = make(gemm.resultType(), results, shift, 3);
    Operand bias = make(gemm.dtype, gemm.n, shift, 4);
    Operand pre = make(gemm.dtype, results, shift, 5);
    std::string error;
    int64_t bytes = cuda::gemmWorkspace(gemm, error);
    EXPECT_EQ(error, "");
    EXPECT_EQ(bytes % 256, 0);
    cuda::DeviceMemory workspace(bytes, "workspace");

    GemmBuffers device, host;
    device.a = a.at(shift * size), host.a = a.copy.data();
    device.b = b.at(shift * size), host.b = b.copy.data();
    device.c = c.at(shift * wide), host.c = c.copy.data();
    if (gemm.bias.present())
      device.bias = bias.at(shift * size), host.bias = bias.copy.data();
    if (gemm.preActivation.present()) {
      device.preActivation = pre.at(shift * size);
      host.preActivation = pre.copy.data();
    }
    device.workspace = workspace.data();
    Aligned<char> scratch(blockedGemmWorkspace(gemm, 1));
    host.workspace = scratch.data.get();
    makeBlockedGemm(gemm, host, 1)();

    cuda::Device &one = cuda::Device::of(0);
    cuda::Stream stream = cuda::makeStream();
    std::vector<cleave_access> accesses;
    for (const Operand *read : {&a, &b, &bias})
      accesses.push_back({read->memory.data(), read->memory.size(), 0});
    for (const Operand *written : {&c, &pre})
      accesses.push_back({written->memory.data(), written->memory.size(), 1});
    cleave_note note = {};
    note.source = "a product";
    note.accesses = accesses.data();
    note.num_accesses = std::ssize(accesses);
    cuda::driver().note(stream.get(), &note);
    Counts before{count("products"), count("launches")};
    cuda::Enqueue enqueue = cuda::makeGemm(one, gemm, device, bytes);
    enqueue(stream.get());
    cuda::check(cuda::driver().cuStreamSynchronize(stream.get()), "waiting");
    Counts after{count("products"), count("launches")};

    double unit = gemm.dtype == DType::F64                      ? 1e-13
                  : gemm.dtype == DType::F32 || gemm.wideResult ? 2e-5
                                                                : 0.02;
    auto compare = [&](const Operand &seen, DType type, const char *what) {
      int64_t bad = 0;
      for (int64_t i = 0; i < results; ++i) {
        double expected = load(seen.copy.data(), type, i);
        double got = load(seen.at(shift * sizeOf(type)), type, i);
        if (!(std::abs(got - expected) <= unit * (1 + std::abs(expected))) &&
            ++bad < 4)
          ADD_FAILURE() << what << " " << i << ": " << got << ", expected "
                        << expected;
      }
    };
    compare(c, gemm.resultType(), "result");
    compare(pre, gemm.dtype, "operand");
    EXPECT_EQ(takeErrors(), "");
    return {after.products - before.products, after.launches - before.launches};
  }
};

TEST_F(BlasTest, FusesWhatCublasLtFuses) {
  for (DType type : {DType::F32, DType::BF16}) {
    Gemm gemm = plain(type, 24, 40, 16);
    gemm.bias = {0, 0, {}};
    gemm.activation = Activation::GeluTanh;
    gemm.preActivation = {0, 0, {}};
    Counts counts = run(gemm);
    EXPECT_EQ(counts.products, 1);
    EXPECT_EQ(counts.launches, 0);
    // The length of the rows is no multiple of 8, so our kernel stores the
    // activation's operand.
    gemm = plain(type, 24, 41, 16);
    gemm.bias = gemm.preActivation = {0, 0, {}};
    gemm.activation = Activation::GeluTanh;
    counts = run(gemm);
    EXPECT_EQ(counts.products, 1);
    EXPECT_EQ(counts.launches, 1);
    gemm.preActivation = {};
    gemm.activation = Activation::Relu;
    counts = run(gemm);
    EXPECT_EQ(counts.products, 1);
    EXPECT_EQ(counts.launches, 0);
  }
}

TEST_F(BlasTest, EpiloguesOfAllKinds) {
  for (DType type : {DType::F32, DType::F64, DType::BF16})
    for (Activation activation :
         {Activation::None, Activation::GeluTanh, Activation::GeluErf,
          Activation::Relu, Activation::Silu})
      for (int bits = 0; bits < 16; ++bits) {
        SCOPED_TRACE(testing::Message() << nameOf(type) << " activation "
                                        << int(activation) << " bits " << bits);
        Gemm gemm = plain(type, 11, bits & 8 ? 16 : 13, 7);
        gemm.activation = activation;
        if (bits & 1)
          gemm.bias = {0, 0, {}};
        if (bits & 2)
          gemm.preActivation = {0, 0, {}};
        gemm.accumulate = bits & 4;
        gemm.alpha = bits & 8 ? 0.5 : 1;
        EXPECT_EQ(run(gemm).products, 1);
      }
}

TEST_F(BlasTest, WideResults) {
  for (int bits = 0; bits < 8; ++bits) {
    Gemm gemm = plain(DType::BF16, 9, 24, 300);
    gemm.wideResult = true;
    if (bits & 1)
      gemm.bias = {0, 0, {}};
    gemm.accumulate = bits & 2;
    gemm.activation = bits & 4 ? Activation::Silu : Activation::None;
    EXPECT_EQ(run(gemm).products, 1);
  }
}

// A batch that shares B is computed as one product. The heads of [batch,
// position, head, feature] are one batched product per sample.
TEST_F(BlasTest, BatchesAreAsFewCallsAsCanBe) {
  Gemm shared = plain(DType::F32, 4, 6, 5);
  shared.batch = {3, 2};
  shared.a.batchStrides = {40, 20};
  shared.b.batchStrides = {0, 0};
  shared.c.batchStrides = {48, 24};
  shared.bias = {0, 0, {}};
  EXPECT_EQ(run(shared).products, 1);
  EXPECT_EQ(cuda::layoutOf(shared)->batch, 1);

  Gemm heads;
  heads.batch = {2, 3};
  heads.m = 8, heads.n = 8, heads.k = 5;
  heads.a = {{0, 0, {}}, {8 * 15, 5}, 15, 1};
  heads.b = {{0, 0, {}}, {8 * 15, 5}, 1, 15};
  heads.c = {{0, 0, {}}, {3 * 64, 64}, 8, 1};
  EXPECT_EQ(run(heads).products, 2);
  heads.activation = Activation::GeluTanh;
  heads.preActivation = {0, 0, {}};
  Counts counts = run(heads);
  EXPECT_EQ(counts.products, 2);
  EXPECT_EQ(counts.launches, 0);
}

TEST_F(BlasTest, EmptyProducts) {
  EXPECT_EQ(run(plain(DType::F32, 0, 4, 4)).products, 0);
  Gemm gemm = plain(DType::F32, 3, 4, 0);
  gemm.a.rowStride = 1;
  gemm.bias = {0, 0, {}};
  EXPECT_EQ(run(gemm).products, 0);
}

TEST_F(BlasTest, OtherLayoutsAreOurs) {
  Gemm gemm = plain(DType::F32, 5, 6, 7);
  gemm.a.rowStride = 20, gemm.a.colStride = 2;
  EXPECT_FALSE(cuda::layoutOf(gemm));
  Counts counts = run(gemm);
  EXPECT_EQ(counts.products, 0);
  EXPECT_EQ(counts.launches, 1);
}

// Axes in any order, with gaps, batches that share operands, and buffers that
// are aligned only to an element.
TEST_F(BlasTest, RandomLayouts) {
  std::mt19937 random(7);
  auto below = [&](int64_t n) { return int64_t(random() % n); };
  int64_t products = 0;
  for (int round = 0; round < 400; ++round) {
    DType types[] = {DType::F32, DType::F64, DType::BF16};
    Gemm gemm;
    gemm.dtype = types[below(3)];
    gemm.m = 1 + below(20), gemm.n = 1 + below(20), gemm.k = 1 + below(20);
    for (int64_t dims = below(4); dims > 0; --dims)
      gemm.batch.push_back(1 + below(4));
    auto place = [&](int64_t rows, int64_t columns, bool mayShare,
                     bool rowsLast) {
      std::vector<int64_t> sizes = gemm.batch, strides(sizes.size() + 2);
      sizes.insert(sizes.end(), {rows, columns});
      std::vector<size_t> order(sizes.size());
      for (size_t i = 0; i < order.size(); ++i)
        order[i] = i;
      if (below(2))
        std::shuffle(order.begin(), order.end(), random);
      if (below(4)) { // mostly an axis of the matrix is the last one
        size_t last = sizes.size() - 1 - (rowsLast ? 0 : below(2));
        std::erase(order, last);
        order.push_back(last);
      }
      int64_t stride = 1;
      for (size_t i = order.size(); i-- > 0;) {
        bool isShared = mayShare && order[i] < gemm.batch.size() && !below(4);
        strides[order[i]] = isShared ? 0 : stride;
        if (!isShared)
          stride *= sizes[order[i]] + (below(3) ? 0 : below(3));
      }
      MatrixRef ref;
      ref.buffer = {0, 0, {}};
      ref.colStride = strides.back();
      ref.rowStride = strides[strides.size() - 2];
      strides.resize(gemm.batch.size());
      ref.batchStrides = strides;
      return ref;
    };
    gemm.a = place(gemm.m, gemm.k, true, false);
    gemm.b = place(gemm.k, gemm.n, true, false);
    bool keeps = below(4) == 0;
    gemm.c = place(gemm.m, gemm.n, false, keeps);
    if (keeps && (gemm.c.colStride == 1 || gemm.n == 1))
      gemm.preActivation = {0, 0, {}};
    if (below(2))
      gemm.bias = {0, 0, {}};
    gemm.accumulate = below(2);
    gemm.activation = static_cast<Activation>(below(5));
    gemm.alpha = below(2) ? 1 : -0.5;
    SCOPED_TRACE(testing::Message() << "round " << round);
    products += run(gemm, below(3)).products > 0;
    if (HasFailure())
      return;
  }
  EXPECT_GT(products, 200);
}

TEST_F(BlasTest, WorkspaceIsKnownWithoutADevice) {
  std::string error;
  EXPECT_EQ(cuda::gemmWorkspace(plain(DType::I32, 2, 2, 2), error), -1);
  EXPECT_NE(error.find("i32"), std::string::npos);
  // A large product occupies the device without a split of its sums. A product
  // with a small result and long sums is split into partial sums, so it needs
  // more workspace.
  int64_t large =
      cuda::gemmWorkspace(plain(DType::F32, 4096, 4096, 4096), error);
  int64_t deep =
      cuda::gemmWorkspace(plain(DType::F32, 128, 128, 1 << 20), error);
  EXPECT_LT(large, deep);
  EXPECT_LE(deep, int64_t(32) << 20);
}
} // namespace
