// Compares a whole training step of a small decoder on a mesh with the same
// step on one device, in double. The axes of the meshes divide none of the
// sizes. The gradients that @loss_grad returns on the ranks are passed
// unchanged to @update.

#include "Context.h"

#include "cleave/Autodiff/RegisterPasses.h"
#include "cleave/Interpreter/Interpreter.h"
#include "cleave/Partition/RegisterPasses.h"
#include "cleave/Partition/Utils/PortTable.h"
#include "cleave/Strategy/RegisterPasses.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"
#include "gtest/gtest.h"

#include <map>
#include <random>

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

namespace {

// 5 samples of 4 tokens, hidden size 6, 3 KV heads with 2 query heads each,
// feed-forward size 10, vocabulary 7, and a tied embedding.
constexpr const char *kLoss = R"(
func.func @loss(%wte: tensor<7x6xf64> {nn.name = "wte", nn.role = #nn.role<parameter>},
                %g: tensor<6xf64> {nn.name = "g", nn.role = #nn.role<parameter>},
                %s: tensor<6xf64> {nn.name = "s", nn.role = #nn.role<parameter>},
                %wq: tensor<6x3x2x4xf64> {nn.name = "wq", nn.role = #nn.role<parameter>},
                %wk: tensor<6x3x4xf64> {nn.name = "wk", nn.role = #nn.role<parameter>},
                %wv: tensor<6x3x4xf64> {nn.name = "wv", nn.role = #nn.role<parameter>},
                %wo: tensor<3x2x4x6xf64> {nn.name = "wo", nn.role = #nn.role<parameter>},
                %w1: tensor<6x10xf64> {nn.name = "w1", nn.role = #nn.role<parameter>},
                %b1: tensor<10xf64> {nn.name = "b1", nn.role = #nn.role<parameter>},
                %w2: tensor<10x6xf64> {nn.name = "w2", nn.role = #nn.role<parameter>},
                %b2: tensor<6xf64> {nn.name = "b2", nn.role = #nn.role<parameter>},
                %tokens: tensor<5x4xi64> {nn.name = "tokens", nn.role = #nn.role<tokens>},
                %labels: tensor<5x4xi64> {nn.name = "labels", nn.role = #nn.role<labels>})
    -> (tensor<f64> {nn.name = "loss", nn.role = #nn.role<loss>}, tensor<f64> {nn.name = "weight", nn.role = #nn.role<weight>}) {
  %x = nn.gather %wte, %tokens dim = 0 : tensor<7x6xf64>, tensor<5x4xi64> -> tensor<5x4x6xf64>
  %n, %mean, %rstd = nn.layer_norm %x, %g, %s epsilon = 1.0e-5
    : (tensor<5x4x6xf64>, tensor<6xf64>, tensor<6xf64>) -> (tensor<5x4x6xf64>, tensor<5x4xf64>, tensor<5x4xf64>)
  %q = nn.einsum "bsh,hngd->bsngd" %n, %wq : tensor<5x4x6xf64>, tensor<6x3x2x4xf64> -> tensor<5x4x3x2x4xf64>
  %k = nn.einsum "bsh,hnd->bsnd" %n, %wk : tensor<5x4x6xf64>, tensor<6x3x4xf64> -> tensor<5x4x3x4xf64>
  %v = nn.einsum "bsh,hnd->bsnd" %n, %wv : tensor<5x4x6xf64>, tensor<6x3x4xf64> -> tensor<5x4x3x4xf64>
  %o, %lse = nn.attention %q, %k, %v scale = 0.5 causal
    : (tensor<5x4x3x2x4xf64>, tensor<5x4x3x4xf64>, tensor<5x4x3x4xf64>) -> (tensor<5x4x3x2x4xf64>, tensor<5x3x2x4xf64>)
  %p = nn.einsum "bsngd,ngdh->bsh" %o, %wo : tensor<5x4x3x2x4xf64>, tensor<3x2x4x6xf64> -> tensor<5x4x6xf64>
  %y = arith.addf %x, %p : tensor<5x4x6xf64>
  %u = nn.einsum "bsh,hf->bsf" %y, %w1 : tensor<5x4x6xf64>, tensor<6x10xf64> -> tensor<5x4x10xf64>
  %c1 = nn.broadcast %b1 dims = [2] : tensor<10xf64> -> tensor<5x4x10xf64>
  %u1 = arith.addf %u, %c1 : tensor<5x4x10xf64>
  %a = nn.gelu tanh %u1 : tensor<5x4x10xf64>
  %z = nn.einsum "bsf,fh->bsh" %a, %w2 : tensor<5x4x10xf64>, tensor<10x6xf64> -> tensor<5x4x6xf64>
  %c2 = nn.broadcast %b2 dims = [2] : tensor<6xf64> -> tensor<5x4x6xf64>
  %z1 = arith.addf %z, %c2 : tensor<5x4x6xf64>
  %r = arith.addf %y, %z1 : tensor<5x4x6xf64>
  %logits = nn.einsum "bsh,vh->bsv" %r, %wte : tensor<5x4x6xf64>, tensor<7x6xf64> -> tensor<5x4x7xf64>
  %each, %l = nn.cross_entropy %logits, %labels ignore_index = 2
    : (tensor<5x4x7xf64>, tensor<5x4xi64>) -> (tensor<5x4xf64>, tensor<5x4xf64>)
  %ignored = arith.constant dense<2> : tensor<5x4xi64>
  %counted = arith.cmpi ne, %labels, %ignored : tensor<5x4xi64>
  %count = arith.uitofp %counted : tensor<5x4xi1> to tensor<5x4xf64>
  %loss = nn.reduce sum %each dims = [0, 1] : tensor<5x4xf64> -> tensor<f64>
  %weight = nn.reduce sum %count dims = [0, 1] : tensor<5x4xf64> -> tensor<f64>
  return %loss, %weight : tensor<f64>, tensor<f64>
})";

struct Setting {
  const char *name, *mesh, *strategies;
};

void PrintTo(const Setting &setting, std::ostream *out) {
  *out << setting.name;
}

using Named = std::map<std::pair<std::string, std::string>, Tensor>;
using NamedTiles = std::map<std::pair<std::string, std::string>, RankTensors>;

std::pair<std::string, std::string> keyOf(const Port &port) {
  return {nn::spell(port.role()).str(), port.name().str()};
}

void registerPasses() {
  static bool registered = [] {
    registerTransformsPasses();
    autodiff::registerAutodiffPasses();
    strategy::registerStrategyPasses();
    registerPartitionPasses();
    return true;
  }();
  (void)registered;
}

/// Returns a random value for an argument.
Tensor drawTensor(const Port &port, std::mt19937_64 &random) {
  auto [role, name] = keyOf(port);
  Tensor tensor(cast<RankedTensorType>(port.type()));
  // Second moments and the learning rate are positive.
  bool positive = name.ends_with(".v") || role == "lr";
  for (double &value : tensor.floats)
    value = positive ? double(random() % 1000 + 1) / 1000
                     : double(random() % 2001) / 1000 - 1;
  for (int64_t &value : tensor.ints)
    value = role == "step" ? 3 : random() % 7;
  return tensor;
}

class TrainingStep : public testing::TestWithParam<Setting> {
protected:
  void SetUp() override { registerPasses(); }

  bool run(ModuleOp module, std::string pipeline) {
    PassManager passes(&test.context);
    if (failed(parsePassPipeline(pipeline, passes)))
      return false;
    return succeeded(passes.run(module));
  }
  void makePrograms();
  void expectAgreement(func::FuncOp one, func::FuncOp part);
  void expectResult(const Port &port, const Port &local, const Tensor &want,
                    const RankTensors &got);

  TestContext test;
  std::string &diagnostics = test.diagnostics;
  OwningOpRef<ModuleOp> global, local;
  MeshAttr mesh;
  std::mt19937_64 random{7};
  // The results that one function returns and the next function takes as
  // arguments: whole tensors on one device, and tiles on the ranks.
  Named whole;
  NamedTiles tiles;
};

/// Makes the unpartitioned program and the per-rank program.
void TrainingStep::makePrograms() {
  std::string text =
      std::string("dist.mesh @mesh <[") + GetParam().mesh + "]>\n" + kLoss;
  global = parseSourceString<ModuleOp>(text, &test.context);
  ASSERT_TRUE(global) << diagnostics;
  ASSERT_TRUE(
      run(*global,
          "nn-differentiate,nn-add-optimizer{clip-norm=0.5},canonicalize,cse"))
      << diagnostics;
  local = global->clone();
  ASSERT_TRUE(run(*local, GetParam().strategies)) << diagnostics;
  PassManager passes(&test.context);
  buildPartitionPipeline(passes);
  ASSERT_TRUE(succeeded(passes.run(*local))) << diagnostics;
  mesh = (*local->getOps<MeshOp>().begin()).getMesh();
}

void TrainingStep::expectResult(const Port &port, const Port &local,
                                const Tensor &want, const RankTensors &got) {
  Assembled found = assembleTensor(got, want.type, mesh, local.sharding());
  EXPECT_EQ(found.replicaDifference, 0)
      << nn::spell(port.role()).str() << " " << port.name().str();
  double largest = 0;
  for (double value : want.floats)
    largest = std::max(largest, std::abs(value));
  for (size_t at = 0; at < want.floats.size(); ++at)
    ASSERT_LE(std::abs(found.whole.floats[at] - want.floats[at]),
              1e-9 * std::max(largest, 1e-6))
        << nn::spell(port.role()).str() << " " << port.name().str() << " at "
        << at;
}

/// Runs a function on one device and on all ranks.
void TrainingStep::expectAgreement(func::FuncOp one, func::FuncOp part) {
  std::vector<Tensor> arguments;
  std::vector<RankTensors> parts;
  for (unsigned i = 0; i < one.getNumArguments(); ++i) {
    Port port{one, false, i}, local{part, false, i};
    auto key = keyOf(port);
    if (!whole.count(key)) {
      whole[key] = drawTensor(port, random);
      tiles[key] = shardTensor(whole[key], mesh, local.sharding());
    }
    arguments.push_back(whole[key]);
    parts.push_back(tiles[key]);
  }
  auto expected = interpret(one, arguments);
  ASSERT_TRUE(succeeded(expected)) << diagnostics;
  auto actual = interpretRanks(part, mesh, parts);
  ASSERT_TRUE(succeeded(actual)) << diagnostics;
  for (unsigned i = 0; i < one.getNumResults(); ++i) {
    Port port{one, true, i};
    ASSERT_NO_FATAL_FAILURE(
        expectResult(port, Port{part, true, i}, (*expected)[i], (*actual)[i]));
    whole[keyOf(port)] = (*expected)[i];
    tiles[keyOf(port)] = (*actual)[i];
  }
}

TEST_P(TrainingStep, AgreesWithOneDevice) {
  ASSERT_NO_FATAL_FAILURE(makePrograms());
  // Each function runs in both programs, and their results are compared.
  for (StringRef name : {nn::kLossGradFunc, nn::kUpdateFunc}) {
    SCOPED_TRACE(name.str());
    auto one = global->lookupSymbol<func::FuncOp>(name);
    auto part = local->lookupSymbol<func::FuncOp>(name);
    ASSERT_TRUE(one && part);
    ASSERT_NO_FATAL_FAILURE(expectAgreement(one, part));
  }
}

constexpr const char *kBoth = "strategy-tensor,strategy-data";
constexpr const char *kZero = "strategy-tensor,strategy-data{zero=1}";
constexpr const char *kZero2 = "strategy-tensor,strategy-data{zero=2}";
constexpr const char *kZero3 = "strategy-tensor,strategy-data{zero=3}";
constexpr const char *kHybrid =
    "strategy-data{zero=3 batch-axes=data,tensor replicate=tensor}";

INSTANTIATE_TEST_SUITE_P(
    Meshes, TrainingStep,
    testing::Values(
        Setting{"one", "\"data\"=1, \"tensor\"=1", kBoth},
        Setting{"data2", "\"data\"=2, \"tensor\"=1", kBoth},
        Setting{"data3zero", "\"data\"=3, \"tensor\"=1", kZero},
        Setting{"data4zero", "\"data\"=4, \"tensor\"=1", kZero},
        Setting{"tensor2", "\"data\"=1, \"tensor\"=2", kBoth},
        Setting{"tensor3", "\"data\"=1, \"tensor\"=3", kBoth},
        Setting{"tensor4", "\"data\"=1, \"tensor\"=4", kBoth},
        Setting{"data2tensor2zero", "\"data\"=2, \"tensor\"=2", kZero},
        Setting{"data3tensor2zero", "\"data\"=3, \"tensor\"=2", kZero},
        Setting{"data3zero2", "\"data\"=3, \"tensor\"=1", kZero2},
        Setting{"data4zero3", "\"data\"=4, \"tensor\"=1", kZero3},
        Setting{"data3tensor2zero3", "\"data\"=3, \"tensor\"=2", kZero3},
        Setting{"data2hybrid2", "\"data\"=2, \"tensor\"=2", kHybrid},
        Setting{"data2tensor3", "\"data\"=2, \"tensor\"=3", kBoth}),
    [](const testing::TestParamInfo<Setting> &info) {
      return std::string(info.param.name);
    });

} // namespace
