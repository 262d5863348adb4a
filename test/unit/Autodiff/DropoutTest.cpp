// The random keys that nn-add-dropout assigns to attention heads.

#include "cleave/Autodiff/Passes.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Interpreter/Interpreter.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "gtest/gtest.h"

#include <map>
#include <set>

using namespace mlir;
using namespace cleave;

namespace {

/// Two attention layers of 3 KV heads with 2 query heads each, and one layer of
/// attention in windows, with 2 windows per sample and 1 head.
const char *kModel = R"(
  func.func @loss(%q: tensor<2x4x3x2x2xf64> {nn.batch_dim = 0 : i64, nn.name = "q", nn.role = #nn.role<input>},
                  %k: tensor<2x4x3x2xf64> {nn.batch_dim = 0 : i64, nn.name = "k", nn.role = #nn.role<input>},
                  %v: tensor<2x2x4x1x1x2xf64> {nn.batch_dim = 0 : i64, nn.name = "v", nn.role = #nn.role<input>})
      -> (tensor<2x4x3x2x2xf64>, tensor<2x4x3x2x2xf64>, tensor<4x4x1x1x2xf64>) {
    %w = nn.reshape %v : tensor<2x2x4x1x1x2xf64> -> tensor<4x4x1x1x2xf64>
    %z = nn.reshape %v : tensor<2x2x4x1x1x2xf64> -> tensor<4x4x1x2xf64>
    %o, %l = nn.attention %q, %k, %k scale = 0.5
      : (tensor<2x4x3x2x2xf64>, tensor<2x4x3x2xf64>, tensor<2x4x3x2xf64>) -> (tensor<2x4x3x2x2xf64>, tensor<2x3x2x4xf64>)
    %p, %m = nn.attention %o, %k, %k scale = 0.5
      : (tensor<2x4x3x2x2xf64>, tensor<2x4x3x2xf64>, tensor<2x4x3x2xf64>) -> (tensor<2x4x3x2x2xf64>, tensor<2x3x2x4xf64>)
    %r, %n = nn.attention %w, %z, %z scale = 0.5
      : (tensor<4x4x1x1x2xf64>, tensor<4x4x1x2xf64>, tensor<4x4x1x2xf64>) -> (tensor<4x4x1x1x2xf64>, tensor<4x1x1x4xf64>)
    return %o, %p, %r : tensor<2x4x3x2x2xf64>, tensor<2x4x3x2x2xf64>, tensor<4x4x1x1x2xf64>
  })";

TEST(AttentionDropout, EveryHeadOfEverySampleHasItsOwnKey) {
  DialectRegistry registry;
  registry.insert<arith::ArithDialect, math::MathDialect, func::FuncDialect,
                  nn::NNDialect>();
  registerInterfaceModels(registry);
  MLIRContext context(registry);
  context.loadAllAvailableDialects();
  auto module = parseSourceString<ModuleOp>(kModel, &context);
  ASSERT_TRUE(module);
  PassManager pm(&context);
  AddDropoutPassOptions options;
  options.p = 0.25;
  pm.addPass(createAddDropoutPass(options));
  ASSERT_TRUE(succeeded(pm.run(*module)));
  auto func = module->lookupSymbol<func::FuncOp>("loss_train");
  ASSERT_TRUE(func);

  // Changes the function so that it returns the dropout keys, which it computes
  // from sample ids, seed and step.
  SmallVector<Value> keys;
  SmallVector<Type> types;
  func.walk([&](nn::AttentionOp op) {
    keys.push_back(op.getDropoutKeys());
    types.push_back(keys.back().getType());
    EXPECT_EQ(op.getDropout().convertToDouble(), 0.25);
  });
  ASSERT_EQ(keys.size(), 3u);
  func.getBody().front().getTerminator()->setOperands(keys);
  func.setFunctionType(
      FunctionType::get(&context, func.getArgumentTypes(), types));

  std::vector<Tensor> arguments;
  for (Type type : func.getArgumentTypes())
    arguments.emplace_back(cast<RankedTensorType>(type));
  std::set<int64_t> all;
  int64_t count = 0;
  // The dropout keys of each sample in layer 0, with seed 0 at step 0.
  std::map<int64_t, std::vector<int64_t>> ofSample;
  for (int64_t seed : {0, 1, 7})
    for (int64_t step : {0, 1, 2})
      for (int64_t sample : {0, 2, 1000}) {
        arguments[3].ints = {sample, sample + 1};
        arguments[4].ints = {seed};
        arguments[5].ints = {step};
        auto found = interpret(func, arguments);
        ASSERT_TRUE(succeeded(found));
        for (const Tensor &tensor : *found) {
          all.insert(tensor.ints.begin(), tensor.ints.end());
          count += tensor.size();
        }
        const std::vector<int64_t> &first = (*found)[0].ints;
        if (seed == 0 && step == 0)
          for (int64_t at : {0, 1})
            ofSample[sample + at].assign(first.begin() + 6 * at,
                                         first.begin() + 6 * (at + 1));
      }
  EXPECT_EQ(count, 27 * (12 + 12 + 4));
  EXPECT_EQ(int64_t(all.size()), count);

  // A sample's dropout keys do not depend on its index in the batch.
  arguments[3].ints = {1000, 1};
  arguments[4].ints = arguments[5].ints = {0};
  auto found = interpret(func, arguments);
  ASSERT_TRUE(succeeded(found));
  std::vector<int64_t> expected = ofSample[1000];
  expected.insert(expected.end(), ofSample[1].begin(), ofSample[1].end());
  EXPECT_EQ((*found)[0].ints, expected);
}

} // namespace
