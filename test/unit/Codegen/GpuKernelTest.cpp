// GPU kernels of every kind at random shapes, interpreted and compared with the
// reference interpreter. Also tests that the CUDA toolkit's assembler accepts
// the kernels.

#include "../TestFolder.h"
#include "../TriesAll.h"
#include "Harness.h"

#include "cleave/Codegen/GPU/GPU.h"
#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Fusion/Fusion.h"

#include "llvm/Support/MemoryBuffer.h"
#include "gtest/gtest.h"

#include <cstdlib>
#include <filesystem>
#include <random>

using namespace mlir;
using namespace cleave;
using namespace cleave::test;

namespace {

/// The sizes of a test kernel's tensors. The tests use short and long rows, and
/// rows with and without a multiple of the vector width.
struct Sizes {
  int64_t a, b, c;
};

std::string elementwise(Sizes s) {
  return fill(
      R"(func.func @k(%x: $0, %y: $1, %bias: $2, %scale: $3, %f: tensor<f32>) -> ($0, $4) {
    %t = nn.transpose %y [1, 0, 2] : $1 -> $0
    %b = nn.broadcast %bias dims = [2] : $2 -> $0
    %s = nn.broadcast %scale dims = [0, 1] : $3 -> $0
    %g = nn.broadcast %f dims = [] : tensor<f32> -> $0
    %1 = arith.addf %x, %t : $0
    %2 = arith.mulf %1, %s : $0
    %3 = arith.addf %2, %b : $0
    %4 = math.tanh %3 : $0
    %r = arith.mulf %4, %g : $0
    %m = arith.cmpf ogt, %r, %x : $0
    return %r, %m : $0, $4
  })",
      {tensor({s.a, s.b, s.c}), tensor({s.b, s.a, s.c}), tensor({s.c}),
       tensor({s.a, s.b}), tensor({s.a, s.b, s.c}, "i1")});
}

std::string flat(Sizes s) {
  return fill(R"(func.func @k(%x: $0, %y: $0) -> $0 {
    %1 = math.exp %x : $0
    %r = arith.addf %1, %y : $0
    return %r : $0
  })",
              {tensor({s.a * s.b * s.c})});
}

std::string layerNorm(Sizes s) {
  return fill(
      R"(func.func @k(%x: $0, %y: $0, %g: $1, %b: $1) -> ($0, $0, $2, $2) {
    %s = arith.addf %x, %y : $0
    %r, %mean, %rstd = nn.layer_norm %s, %g, %b epsilon = 1.0e-5 : ($0, $1, $1) -> ($0, $2, $2)
    return %s, %r, %mean, %rstd : $0, $0, $2, $2
  })",
      {tensor({s.a, s.b, s.c}), tensor({s.c}), tensor({s.a, s.b})});
}

std::string layerNormGrad(Sizes s) {
  return fill(
      R"(func.func @k(%dy: $0, %x: $0, %g: $1, %mean: $2, %rstd: $2, %res: $0) -> $0 {
    %dx = nn.layer_norm_grad %dy, %x, %g, %mean, %rstd : ($0, $0, $1, $2, $2) -> $0
    %r = arith.addf %dx, %res : $0
    return %r : $0
  })",
      {tensor({s.a, s.c}), tensor({s.c}), tensor({s.a})});
}

std::string rmsNorm(Sizes s) {
  return fill(R"(func.func @k(%x: $0, %g: $1) -> ($0, $2) {
    %r, %rstd = nn.rms_norm %x, %g epsilon = 1.0e-6 : ($0, $1) -> ($0, $2)
    return %r, %rstd : $0, $2
  })",
              {tensor({s.a, s.c}), tensor({s.c}), tensor({s.a})});
}

std::string softmax(Sizes s) {
  return fill(R"(func.func @k(%x: $0) -> $0 {
    %r = nn.softmax %x : $0
    return %r : $0
  })",
              {tensor({s.a, s.b, s.c})});
}

std::string crossEntropy(Sizes s) {
  return fill(R"(func.func @k(%x: $0, %l: $1) -> ($2, $2) {
    %loss, %lse = nn.cross_entropy %x, %l ignore_index = 3 : ($0, $1) -> ($2, $2)
    return %loss, %lse : $2, $2
  })",
              {tensor({s.a, s.c}), tensor({s.a}, "i64"), tensor({s.a})});
}

std::string crossEntropyGrad(Sizes s) {
  return fill(R"(func.func @k(%g: $2, %x: $0, %l: $1, %lse: $2) -> $0 {
    %r = nn.cross_entropy_grad %g, %x, %l, %lse ignore_index = 3 : ($2, $0, $1, $2) -> $0
    return %r : $0
  })",
              {tensor({s.a, s.c}), tensor({s.a}, "i64"), tensor({s.a})});
}

std::string columnSums(Sizes s) {
  return fill(R"(func.func @k(%x: $0, %y: $0, %old: $1) -> ($1, $1) {
    %p = arith.mulf %x, %y : $0
    %1 = nn.reduce sum %p dims = [0, 1] : $0 -> $1
    %2 = nn.reduce max %x dims = [0, 1] : $0 -> $1
    %r = arith.addf %1, %old : $1
    return %r, %2 : $1, $1
  })",
              {tensor({s.a, s.b, s.c}), tensor({s.c})});
}

std::string gather(Sizes s) {
  return fill(
      R"(func.func @k(%t: $0, %i: $1, %p: $2) -> $2 {
    %g = nn.gather %t, %i dim = 0 : $0, $1 -> $2
    %r = arith.addf %g, %p : $2
    return %r : $2
  })",
      {tensor({11, s.c}), tensor({s.a, s.b}, "i64"), tensor({s.a, s.b, s.c})});
}

std::string scatter(Sizes s) {
  return fill(
      R"(func.func @k(%i: $1, %u: $2) -> $0 {
    %n = arith.negf %u : $2
    %r = nn.scatter_add %i, %n dim = 0 : $1, $2 -> $0
    return %r : $0
  })",
      {tensor({11, s.c}), tensor({s.a, s.b}, "i64"), tensor({s.a, s.b, s.c})});
}

std::string dropout(Sizes s) {
  return fill(
      R"(func.func @k(%x: $0, %seed: tensor<i64>, %step: tensor<i64>, %ids: $1) -> $0 {
    %r = nn.dropout %x, %seed, %step, %ids p = 0.3 op_id = 7 global_shape = [$2, $3, $4] : $0, $1
    return %r : $0
  })",
      {tensor({s.a, s.b, s.c}), tensor({s.a}, "i64"), std::to_string(s.a),
       std::to_string(s.b), std::to_string(s.c)});
}

std::string adamw(Sizes s) {
  return fill(
      R"(func.func @k(%p: $0, %m: $0, %v: $0, %g: $0, %scale: tensor<f32>, %lr: tensor<f32>, %step: tensor<i64>) -> ($0, $0, $0) {
    %v0 = math.absf %v : $0
    %p1, %m1, %v1 = nn.adamw %p, %m, %v0, %g, %scale, %lr, %step
      beta1 = 0.9 beta2 = 0.999 epsilon = 1.0e-8 weight_decay = 0.01 : $0, tensor<f32>
    return %p1, %m1, %v1 : $0, $0, $0
  })",
      {tensor({s.b, s.c})});
}

std::string placements(Sizes s) {
  auto text = [](int64_t value) { return std::to_string(value); };
  return fill(R"(func.func @k(%x: $0, %y: $1) -> ($2, $3) {
    %s = nn.slice %x [0, 0] [$4, $5] [1, 2] : $0 -> $6
    %c = nn.concat %s, %y dim = 1 : $6, $1 -> $2
    %p = nn.pad %x low = [2, 1] high = [0, 3] value = -1.5 : $0 -> $3
    return %c, %p : $2, $3
  })",
              {tensor({s.a, 2 * s.c}), tensor({s.a, s.b}),
               tensor({s.a, s.c + s.b}), tensor({s.a + 2, 2 * s.c + 4}),
               text(s.a), text(s.c), tensor({s.a, s.c})});
}

std::string transposes(Sizes s) {
  return fill(R"(func.func @k(%x: $0, %y: $1) -> ($1, $2) {
    %t = nn.transpose %x [0, 2, 1] : $0 -> $1
    %r = arith.addf %t, %y : $1
    %l = nn.reshape %y : $1 -> $3
    %u = nn.transpose %l [1, 0] : $3 -> $2
    return %r, %u : $1, $2
  })",
              {tensor({s.a, s.b, s.c}), tensor({s.a, s.c, s.b}),
               tensor({s.b, s.a * s.c}), tensor({s.a * s.c, s.b})});
}

std::string integers(Sizes s) {
  return fill(R"(func.func @k(%x: $0, %m: $1) -> ($2, $3, $2, $0) {
    %sum = nn.reduce sum %x dims = [1] : $0 -> $2
    %any = nn.reduce max %m dims = [1] : $1 -> $3
    %best = nn.argmax %x dim = 1 : $0 -> $2
    %three = arith.constant dense<3> : $0
    %q = arith.divsi %x, %three : $0
    %z = arith.select %m, %q, %x : $1, $0
    return %sum, %any, %best, %z : $2, $3, $2, $0
  })",
              {tensor({s.a, s.c}, "i64"), tensor({s.a, s.c}, "i1"),
               tensor({s.a}, "i64"), tensor({s.a}, "i1")});
}

using Family = std::string (*)(Sizes);
const std::pair<const char *, Family> kFamilies[] = {
    {"elementwise", elementwise},
    {"flat", flat},
    {"layer norm", layerNorm},
    {"layer norm's gradient", layerNormGrad},
    {"rms norm", rmsNorm},
    {"softmax", softmax},
    {"cross-entropy", crossEntropy},
    {"cross-entropy's gradient", crossEntropyGrad},
    {"column sums", columnSums},
    {"gather", gather},
    {"scatter_add", scatter},
    {"dropout", dropout},
    {"adamw", adamw},
    {"placements", placements},
    {"transposes", transposes},
    {"integers", integers},
};

void checkFamilies(const std::vector<Sizes> &shapes) {
  for (auto [name, family] : kFamilies)
    for (Sizes s : shapes) {
      SCOPED_TRACE(std::string(name) + " " + std::to_string(s.a) + "x" +
                   std::to_string(s.b) + "x" + std::to_string(s.c));
      checkKernel(family(s), gpuOptions());
      if (::testing::Test::HasFatalFailure())
        return;
    }
}

} // namespace

TEST(GpuKernel, SmallShapes) {
  checkFamilies({{2, 3, 4}, {5, 1, 7}, {1, 1, 1}, {3, 2, 33}});
}

TEST(GpuKernel, RandomShapes) {
  std::mt19937 random(5);
  const int64_t rows[] = {1, 2, 3, 6, 17},
                columns[] = {12, 31, 64, 100, 128, 192, 255, 260};
  std::vector<Sizes> shapes;
  for (int i = 0; i < (test::triesAll() ? 4 : 1); ++i)
    shapes.push_back(
        {rows[random() % 5], rows[random() % 5], columns[random() % 8]});
  checkFamilies(shapes);
}

// Rows with several vectors per thread, and rows too long for registers.
TEST(GpuKernel, LongRows) {
  for (int64_t columns : test::triesAll()
                             ? std::vector<int64_t>{1500, 4096, 5001, 9216}
                             : std::vector<int64_t>{5001})
    for (Family family : {layerNorm, softmax, crossEntropy, crossEntropyGrad})
      checkKernel(family({2, 1, columns}), gpuOptions());
  for (int64_t columns : test::triesAll() ? std::vector<int64_t>{40000, 33001}
                                          : std::vector<int64_t>{33001})
    for (Family family : {rmsNorm, crossEntropy, crossEntropyGrad})
      checkKernel(family({2, 1, columns}), gpuOptions());
}

// Many short rows, several of which share a block.
TEST(GpuKernel, ManyRows) {
  for (int64_t columns : {4, 24, 40})
    for (Family family : {layerNorm, softmax})
      checkKernel(family({133, 9, columns}), gpuOptions());
}

// Few columns of many rows, so that several threads compute one column's sum.
TEST(GpuKernel, SharedSums) {
  for (Sizes s : {Sizes{70, 10, 24}, {33, 31, 5}, {128, 2, 1}, {65, 1, 100}})
    checkKernel(columnSums(s), gpuOptions());
}

TEST(GpuKernel, ScatterOfManyUpdates) {
  for (Sizes s : {Sizes{40, 7, 36}, {64, 1, 1}, {3, 11, 1100}})
    checkKernel(scatter(s), gpuOptions());
  checkKernel(R"(
    func.func @k(%i: tensor<70xi64>, %u: tensor<5x70x3xf32>) -> tensor<5x11x3xf32> {
      %r = nn.scatter_add %i, %u dim = 1 : tensor<70xi64>, tensor<5x70x3xf32> -> tensor<5x11x3xf32>
      return %r : tensor<5x11x3xf32>
    })",
              gpuOptions());
}

// Comparisons with NaN.
TEST(GpuKernel, UnorderedComparisons) {
  for (const char *predicate :
       {"oeq", "one", "olt", "oge", "ord", "ueq", "une", "ugt", "ule", "uno"}) {
    SCOPED_TRACE(predicate);
    RunOptions options = gpuOptions();
    options.prepare = [](std::vector<Tensor> &arguments) {
      for (size_t i = 0; i < 2; ++i)
        for (int64_t j = 0; j < arguments[i].size(); ++j)
          arguments[i].floats[j] = (j + i) % 5 == 4 ? NAN : double(j / (i + 2));
    };
    checkKernel(fill(R"(func.func @k(%x: $0, %y: $0) -> tensor<30xi1> {
      %r = arith.cmpf $1, %x, %y : $0
      return %r : tensor<30xi1>
    })",
                     {tensor({30}), predicate}),
                options);
  }
}

// Emitting the same kernel twice gives the same text, and the kernel states its
// own launch dimensions.
TEST(GpuKernel, LaunchAndDeterminism) {
  auto module = parse(columnSums({70, 10, 24}));
  auto kernel = module->lookupSymbol<func::FuncOp>("k");
  ASSERT_TRUE(succeeded(kernels::annotateKernel(kernel)));
  std::string texts[2];
  for (std::string &text : texts) {
    auto emitted = codegen::emitGpuKernels(*module);
    ASSERT_TRUE(succeeded(emitted));
    auto found = codegen::gpuKernels(**emitted);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].symbol, "k");
    EXPECT_EQ(found[0].arguments, 6);
    EXPECT_GE(found[0].grid, 3);
    EXPECT_GT(found[0].sharedBytes, 0);
    EXPECT_LE(found[0].sharedBytes, 48 << 10);
    auto ptx = codegen::compileToPtx(**emitted, "sm_90");
    ASSERT_TRUE(succeeded(ptx));
    text = *ptx;
  }
  EXPECT_EQ(texts[0], texts[1]);
}

TEST(GpuKernel, Assembles) {
  for (bool wide : {false, true}) {
    SCOPED_TRACE(wide ? "f64" : "f32");
    std::string all;
    int number = 0;
    for (auto [name, family] : kFamilies)
      for (Sizes s : {Sizes{64, 32, 768}, {6, 5, 33}, {2, 2, 40000}}) {
        std::string text = family(s);
        text.replace(text.find("@k"), 2, "@k" + std::to_string(number++));
        all += wide ? widened(text) : text;
      }
    auto module = parse(all);
    ASSERT_TRUE(module);
    for (auto kernel : module->getOps<func::FuncOp>())
      ASSERT_TRUE(succeeded(kernels::annotateKernel(kernel)));
    for (const char *arch :
         wide && !test::triesAll()
             ? std::vector<const char *>{"sm_80"}
             : std::vector<const char *>{"sm_80", "sm_90", "sm_100"}) {
      SCOPED_TRACE(arch);
      auto emitted = codegen::emitGpuKernels(*module);
      ASSERT_TRUE(succeeded(emitted));
      for (const codegen::GpuKernel &kernel : codegen::gpuKernels(**emitted)) {
        EXPECT_LE(kernel.block, 1024);
        EXPECT_LE(kernel.sharedBytes, 48 << 10) << kernel.symbol;
      }
      // Math functions in double precision come from the CUDA toolkit.
      if (wide && !codegen::findPtxas())
        GTEST_SKIP() << "no CUDA toolkit: f64 is not compiled";
      auto ptx = codegen::compileToPtx(**emitted, arch);
      ASSERT_TRUE(succeeded(ptx));
      EXPECT_EQ(ptx->find(".extern"), std::string::npos);
      if (!codegen::findPtxas())
        continue;
      test::TestFolder folder;
      std::string cubin = folder.path("kernels.cubin");
      ASSERT_TRUE(
          succeeded(codegen::assemblePtx(*ptx, arch, cubin, module->getLoc())));
      EXPECT_GT(std::filesystem::file_size(cubin), 1000u);
    }
  }
}

// Kernels of a model, read from a file that test/python/test_gpu_kernels.py
// writes.
TEST(GpuKernel, OfAFile) {
  const char *path = std::getenv("CLEAVE_TEST_KERNELS");
  if (!path)
    GTEST_SKIP() << "CLEAVE_TEST_KERNELS names no file";
  auto file = llvm::MemoryBuffer::getFile(path);
  ASSERT_TRUE(bool(file)) << path;
  auto whole = parse((*file)->getBuffer().str());
  ASSERT_TRUE(whole);
  RunOptions options = gpuOptions();
  options.onlyF32 = true; // constants are spelled as bits
  options.indexBound = 3;
  options.f32Bound = 1e-3;
  int count = 0;
  for (auto kernel : whole->getOps<func::FuncOp>()) {
    if (!kernel->hasAttr(kernels::kKernelAttr))
      continue;
    SCOPED_TRACE(kernel.getName().str());
    int64_t most = 0;
    for (Type type : kernel.getArgumentTypes())
      most = std::max(most, cast<RankedTensorType>(type).getNumElements());
    // The reference interpreter runs one rank only.
    bool ofRanks = kernel
                       ->walk([](Operation *op) {
                         return isa<dist::DistDialect>(op->getDialect())
                                    ? WalkResult::interrupt()
                                    : WalkResult::advance();
                       })
                       .wasInterrupted();
    if (most > 200000 || ofRanks)
      continue;
    kernel.setName("k");
    std::string text;
    llvm::raw_string_ostream(text) << kernel;
    kernel.setName("done" + std::to_string(count++));
    checkKernel(text, options);
    if (::testing::Test::HasFatalFailure())
      return;
  }
  EXPECT_GT(count, 20);
}
