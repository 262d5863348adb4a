// Tests that positions in zig-zag order do not change what a function computes,
// and that they give the ranks of a ring equal work.

#include "Context.h"

#include "cleave/Interpreter/Interpreter.h"
#include "cleave/Strategy/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "gtest/gtest.h"

#include <random>

using namespace mlir;
using namespace cleave;

namespace {

std::string replaced(std::string text, int64_t size) {
  for (size_t at; (at = text.find('S')) != std::string::npos;)
    text.replace(at, 1, std::to_string(size));
  return text;
}

struct Zigzag : testing::Test {
  TestContext test;

  OwningOpRef<ModuleOp> parse(const std::string &text) {
    test.diagnostics.clear();
    return parseSourceString<ModuleOp>(text, &test.context);
  }
  static func::FuncOp funcOf(ModuleOp module) {
    return *module.getOps<func::FuncOp>().begin();
  }

  void reorder(ModuleOp module, int64_t ranks) {
    PassManager passes(&test.context);
    StrategyZigzagPassOptions options;
    options.ranks = ranks;
    passes.addPass(createStrategyZigzagPass(options));
    ASSERT_TRUE(succeeded(passes.run(module))) << test.diagnostics;
  }

  /// Compares a program with its zig-zag version, which must contain `gathers`
  /// gather operations.
  void computesTheSame(const char *text, int64_t size, int64_t ranks,
                       int64_t gathers) {
    std::mt19937 random(3 + size);
    OwningOpRef<ModuleOp> before = parse(replaced(text, size));
    ASSERT_TRUE(before) << test.diagnostics;
    OwningOpRef<ModuleOp> after = before->clone();
    reorder(*after, ranks);
    int64_t found = 0;
    after->walk([&](nn::GatherOp) { ++found; });
    EXPECT_EQ(found, gathers);
    std::vector<Tensor> arguments;
    for (Type type : funcOf(*before).getArgumentTypes()) {
      Tensor tensor(cast<RankedTensorType>(type));
      for (double &value : tensor.floats)
        value = std::normal_distribution<double>()(random);
      for (int64_t &value : tensor.ints)
        value = random() % 5;
      arguments.push_back(tensor);
    }
    auto expected = interpret(funcOf(*before), arguments);
    auto actual = interpret(funcOf(*after), arguments);
    ASSERT_TRUE(succeeded(expected) && succeeded(actual)) << test.diagnostics;
    for (unsigned i = 0; i < expected->size(); ++i)
      for (int64_t at = 0; at < (*expected)[i].size(); ++at)
        ASSERT_NEAR((*actual)[i].floats[at], (*expected)[i].floats[at], 1e-10)
            << size << " positions, " << ranks << " ranks, result " << i
            << " at " << at;
  }
};

/// A model with a token embedding, a position embedding, a constant along
/// positions, causal attention with a bias that depends on distance and with
/// dropout, and a sum over the labels that count.
const char *kModel = R"(
  func.func @f(%tokens: tensor<2xSxi64>, %labels: tensor<2xSxi64>, %table: tensor<5x4xf64>, %places: tensor<Sx4xf64>, %keys: tensor<2x2x1xi64>)
      -> (tensor<2xSx4xf64>, tensor<f64>, tensor<2xf64>, tensor<Sx4xf64>) {
    %e = nn.gather %table, %tokens dim = 0 : tensor<5x4xf64>, tensor<2xSxi64> -> tensor<2xSx4xf64>
    %p = nn.broadcast %places dims = [1, 2] : tensor<Sx4xf64> -> tensor<2xSx4xf64>
    %x = arith.addf %e, %p : tensor<2xSx4xf64>
    %q = nn.reshape %x : tensor<2xSx4xf64> -> tensor<2xSx2x1x2xf64>
    %k = nn.reshape %x : tensor<2xSx4xf64> -> tensor<2xSx2x2xf64>
    %i = nn.iota dim = 0 : tensor<SxSxi64>
    %j = nn.iota dim = 1 : tensor<SxSxi64>
    %d = arith.subi %j, %i : tensor<SxSxi64>
    %df = arith.sitofp %d : tensor<SxSxi64> to tensor<SxSxf64>
    %bias = nn.reshape %df : tensor<SxSxf64> -> tensor<1x1x1xSxSxf64>
    %at = nn.iota dim = 0 : tensor<Sxi64>
    %o, %lse = nn.attention %q, %k, %k bias(%bias) dropout(%keys, %at, %at) p = 0.4 scale = 0.5 causal
      : (tensor<2xSx2x1x2xf64>, tensor<2xSx2x2xf64>, tensor<2xSx2x2xf64>, tensor<1x1x1xSxSxf64>, tensor<2x2x1xi64>, tensor<Sxi64>, tensor<Sxi64>)
      -> (tensor<2xSx2x1x2xf64>, tensor<2x2x1xSxf64>)
    %y = nn.reshape %o : tensor<2xSx2x1x2xf64> -> tensor<2xSx4xf64>
    %loss, %z = nn.cross_entropy %y, %labels ignore_index = 4 : (tensor<2xSx4xf64>, tensor<2xSxi64>) -> (tensor<2xSxf64>, tensor<2xSxf64>)
    %rows = nn.reduce sum %loss dims = [1] : tensor<2xSxf64> -> tensor<2xf64>
    %sum = nn.reduce sum %rows dims = [0] : tensor<2xf64> -> tensor<f64>
    %g = nn.reduce sum %y dims = [0] : tensor<2xSx4xf64> -> tensor<Sx4xf64>
    return %y, %sum, %rows, %g : tensor<2xSx4xf64>, tensor<f64>, tensor<2xf64>, tensor<Sx4xf64>
  })";

/// A model that numbers the tokens of each expert, within a sequence and over
/// all sequences.
const char *kCapacity = R"(
  func.func @f(%q: tensor<2xSx1x1x2xf64>, %k: tensor<2xSx1x2xf64>, %router: tensor<2x3xf64>)
      -> (tensor<2xSx1x1x2xf64>, tensor<2xSx2xf64>) {
    %o, %lse = nn.attention %q, %k, %k scale = 0.5 causal
      : (tensor<2xSx1x1x2xf64>, tensor<2xSx1x2xf64>, tensor<2xSx1x2xf64>)
      -> (tensor<2xSx1x1x2xf64>, tensor<2x1x1xSxf64>)
    %x = nn.reshape %o : tensor<2xSx1x1x2xf64> -> tensor<2xSx2xf64>
    %scores = nn.einsum "bsd,de->bse" %x, %router : tensor<2xSx2xf64>, tensor<2x3xf64> -> tensor<2xSx3xf64>
    %best, %ids = nn.top_k %scores k = 2 : tensor<2xSx3xf64> -> tensor<2xSx2xf64>, tensor<2xSx2xi64>
    %positions = nn.iota dim = 0 : tensor<Sxi64>
    %samples = nn.iota dim = 0 : tensor<2xi64>
    %loads = arith.constant dense<[[3, 1, 4], [1, 5, 9]]> : tensor<2x3xi64>
    %0 = nn.position_in_expert %ids, %positions experts = 3 : (tensor<2xSx2xi64>, tensor<Sxi64>) -> tensor<2xSx2xi64>
    %1 = nn.position_in_expert %ids, %positions after(%loads, %samples) experts = 3
      : (tensor<2xSx2xi64>, tensor<Sxi64>, tensor<2x3xi64>, tensor<2xi64>) -> tensor<2xSx2xi64>
    %hundred = arith.constant dense<100> : tensor<2xSx2xi64>
    %2 = arith.muli %1, %hundred : tensor<2xSx2xi64>
    %3 = arith.addi %0, %2 : tensor<2xSx2xi64>
    %4 = arith.sitofp %3 : tensor<2xSx2xi64> to tensor<2xSx2xf64>
    return %o, %4 : tensor<2xSx1x1x2xf64>, tensor<2xSx2xf64>
  })";

TEST_F(Zigzag, ComputesTheSame) {
  for (auto [size, ranks] : {std::pair<int64_t, int64_t>{8, 2},
                             {12, 3},
                             {31, 4},
                             {29, 2},
                             {40, 5},
                             {64, 4}}) {
    // The expected number of gathers is the sum of three numbers: gathers from
    // tables of the model itself, gathers of arguments, gathers of results. The
    // second model has no table.
    computesTheSame(kModel, size, ranks, 1 + 3 + 2);
    computesTheSame(kCapacity, size, ranks, 2 + 2);
  }
}

/// Counts the keys that each rank's queries attend to, from the position
/// operands of attention.
TEST_F(Zigzag, BalancesRanks) {
  for (auto [size, ranks] : {std::pair<int64_t, int64_t>{4096, 2},
                             {4096, 4},
                             {6000, 7},
                             {8192, 8}}) {
    std::string text = replaced(R"(
      func.func @f(%q: tensor<1xSx1x1x1xf64>, %k: tensor<1xSx1x1xf64>) -> tensor<1xSx1x1x1xf64> {
        %o, %lse = nn.attention %q, %k, %k scale = 0.5 causal
          : (tensor<1xSx1x1x1xf64>, tensor<1xSx1x1xf64>, tensor<1xSx1x1xf64>)
          -> (tensor<1xSx1x1x1xf64>, tensor<1x1x1xSxf64>)
        return %o : tensor<1xSx1x1x1xf64>
      })",
                                size);
    OwningOpRef<ModuleOp> module = parse(text);
    ASSERT_TRUE(module) << test.diagnostics;
    reorder(*module, ranks);
    // Removes everything from the function except the computation of the
    // positions.
    func::FuncOp func = funcOf(*module);
    nn::AttentionOp attention = *func.getOps<nn::AttentionOp>().begin();
    Operation *terminator = func.getBody().front().getTerminator();
    terminator->setOperands({attention.getQPositions()});
    func.setFunctionType(
        FunctionType::get(&test.context, func.getArgumentTypes(),
                          {attention.getQPositions().getType()}));
    for (Operation &op :
         llvm::make_early_inc_range(llvm::reverse(func.getBody().front())))
      if (op.use_empty() && &op != terminator)
        op.erase();
    std::vector<Tensor> none;
    for (Type type : func.getArgumentTypes())
      none.emplace_back(cast<RankedTensorType>(type));
    auto positions = interpret(func, none);
    ASSERT_TRUE(succeeded(positions)) << test.diagnostics;
    int64_t tile = llvm::divideCeil(size, ranks);
    std::vector<int64_t> seen(ranks);
    std::vector<bool> present(size);
    for (int64_t at = 0; at < size; ++at) {
      int64_t position = (*positions)[0].ints[at];
      ASSERT_TRUE(position >= 0 && position < size && !present[position]);
      present[position] = true;
      seen[at / tile] += position + 1;
    }
    double mean = double(size) * (size + 1) / 2 / ranks;
    double most = *std::max_element(seen.begin(), seen.end());
    EXPECT_LE(most / mean, 1.01) << size << " positions, " << ranks << " ranks";
  }
}

TEST_F(Zigzag, LeavesWhatDependsOnOrder) {
  const char *sliced = R"(
    func.func @f(%q: tensor<1x8x1x1x2xf64>, %k: tensor<1x8x1x2xf64>) -> tensor<1x1x1x1x2xf64> {
      %o, %lse = nn.attention %q, %k, %k scale = 0.5 causal
        : (tensor<1x8x1x1x2xf64>, tensor<1x8x1x2xf64>, tensor<1x8x1x2xf64>)
        -> (tensor<1x8x1x1x2xf64>, tensor<1x1x1x8xf64>)
      %last = nn.slice %o [0, 7, 0, 0, 0] [1, 1, 1, 1, 2] [1, 1, 1, 1, 1] : tensor<1x8x1x1x2xf64> -> tensor<1x1x1x1x2xf64>
      return %last : tensor<1x1x1x1x2xf64>
    })";
  OwningOpRef<ModuleOp> module = parse(sliced);
  ASSERT_TRUE(module) << test.diagnostics;
  reorder(*module, 2);
  module->walk([](nn::GatherOp) { ADD_FAILURE() << "reordered"; });

  // With only 5 positions, the padding would not stay at the end of the last
  // tile, so the order is not changed.
  module = parse(replaced(kModel, 5));
  reorder(*module, 4);
  int64_t gathers = 0;
  module->walk([&](nn::GatherOp) { ++gathers; });
  EXPECT_EQ(gathers, 1);
}

} // namespace
