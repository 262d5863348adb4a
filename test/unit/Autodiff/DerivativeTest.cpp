// Compares every vector-Jacobian product with central differences in double.
//
// Each case is the body of a function with float arguments a, b, c, ... that
// ends in a value %y. The loss is sum(y * w) with random weights w, so that a
// wrong transpose, sign or factor is detected. nn-differentiate computes the
// derivative; the reference interpreter computes the differences.

#include "DerivativeCase.h"

#include "cleave/Autodiff/Passes.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Interpreter/Interpreter.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "gtest/gtest.h"

#include <random>
#include <set>

using namespace mlir;
using namespace cleave;

namespace {

std::vector<Case> arithmeticCases() {
  return {
      {"addf",
       {"2x3", "2x3"},
       "2x3",
       "%y = arith.addf %a, %b : tensor<2x3xf64>"},
      {"subf",
       {"2x3", "2x3"},
       "2x3",
       "%y = arith.subf %a, %b : tensor<2x3xf64>"},
      {"mulf",
       {"2x3", "2x3"},
       "2x3",
       "%y = arith.mulf %a, %b : tensor<2x3xf64>"},
      {"divf",
       {"2x3", "2x3"},
       "2x3",
       "%y = arith.divf %a, %b : tensor<2x3xf64>",
       0.5,
       2},
      {"negf", {"2x3"}, "2x3", "%y = arith.negf %a : tensor<2x3xf64>"},
      {"maximumf",
       {"2x3", "2x3"},
       "2x3",
       "%y = arith.maximumf %a, %b : tensor<2x3xf64>"},
      {"minimumf",
       {"2x3", "2x3"},
       "2x3",
       "%y = arith.minimumf %a, %b : tensor<2x3xf64>"},
      {"select", {"2x3", "2x3"}, "2x3", R"(
        %zero = arith.constant dense<0.0> : tensor<2x3xf64>
        %half = arith.constant dense<[[1.0, -1.0, 1.0], [-1.0, -1.0, 1.0]]> : tensor<2x3xf64>
        %p = arith.cmpf ogt, %half, %zero : tensor<2x3xf64>
        %y = arith.select %p, %a, %b : tensor<2x3xi1>, tensor<2x3xf64>)"},
  };
}

/// Convolution and pooling.
std::vector<Case> convolutionCases() {
  return {
      {"conv", {"2x4x7", "6x2x3"}, "2x6x4", R"(
        %y = nn.conv %a, %b strides = [2] dilations = [1] low = [1] high = [1] groups = 2
          : tensor<2x4x7xf64>, tensor<6x2x3xf64> -> tensor<2x6x4xf64>)"},
      {"conv_plane", {"1x2x5x4", "3x2x2x3"}, "1x3x3x4", R"(
        %y = nn.conv %a, %b strides = [1, 1] dilations = [2, 1] low = [0, 2] high = [0, 0] groups = 1
          : tensor<1x2x5x4xf64>, tensor<3x2x2x3xf64> -> tensor<1x3x3x4xf64>)"},
      {"pool_max", {"1x2x9"}, "1x2x5", R"(
        %y = nn.pool max %a window = [3] strides = [2] dilations = [1] low = [1] high = [1]
          : tensor<1x2x9xf64> -> tensor<1x2x5xf64>)"},
      {"pool_sum", {"1x2x4x5"}, "1x2x3x2", R"(
        %y = nn.pool sum %a window = [2, 3] strides = [1, 2] dilations = [1, 1] low = [0, 0] high = [0, 0]
          : tensor<1x2x4x5xf64> -> tensor<1x2x3x2xf64>)"},
  };
}

/// Conversions, and operations of the math dialect.
std::vector<Case> mathCases() {
  return {
      {"extf_truncf", {"2x3"}, "2x3", R"(
        %0 = arith.truncf %a : tensor<2x3xf64> to tensor<2x3xf32>
        %y = arith.extf %0 : tensor<2x3xf32> to tensor<2x3xf64>)"},
      {"exp", {"2x3"}, "2x3", "%y = math.exp %a : tensor<2x3xf64>"},
      {"log", {"2x3"}, "2x3", "%y = math.log %a : tensor<2x3xf64>", 0.5, 2},
      {"tanh", {"2x3"}, "2x3", "%y = math.tanh %a : tensor<2x3xf64>"},
      {"erf", {"2x3"}, "2x3", "%y = math.erf %a : tensor<2x3xf64>"},
      {"sqrt", {"2x3"}, "2x3", "%y = math.sqrt %a : tensor<2x3xf64>", 0.5, 2},
      {"rsqrt", {"2x3"}, "2x3", "%y = math.rsqrt %a : tensor<2x3xf64>", 0.5, 2},
      {"sin", {"2x3"}, "2x3", "%y = math.sin %a : tensor<2x3xf64>"},
      {"cos", {"2x3"}, "2x3", "%y = math.cos %a : tensor<2x3xf64>"},
      {"absf", {"2x3"}, "2x3", "%y = math.absf %a : tensor<2x3xf64>"},
      {"remf",
       {"2x3", "2x3"},
       "2x3",
       "%y = arith.remf %a, %b : tensor<2x3xf64>",
       0.5,
       2},
      {"powf",
       {"2x3", "2x3"},
       "2x3",
       "%y = math.powf %a, %b : tensor<2x3xf64>",
       0.5,
       2},
      {"floor",
       {"2x3"},
       "2x3",
       "%y = math.floor %a : tensor<2x3xf64>",
       0.2,
       0.8},
      {"ceil", {"2x3"}, "2x3", "%y = math.ceil %a : tensor<2x3xf64>", 0.2, 0.8},
      {"roundeven",
       {"2x3"},
       "2x3",
       "%y = math.roundeven %a : tensor<2x3xf64>",
       0.6,
       1.4},
  };
}

/// Activations, and operations that save or recompute them.
std::vector<Case> activationCases() {
  return {
      {"gelu_erf", {"2x3"}, "2x3", "%y = nn.gelu erf %a : tensor<2x3xf64>"},
      {"gelu_tanh", {"2x3"}, "2x3", "%y = nn.gelu tanh %a : tensor<2x3xf64>"},
      {"sigmoid", {"2x3"}, "2x3", "%y = nn.sigmoid %a : tensor<2x3xf64>"},
      {"save", {"2x3"}, "2x3", "%y = nn.save %a : tensor<2x3xf64>"},
      {"rematerialize",
       {"2x3", "2"},
       "2x3",
       "%y = nn.rematerialize %a after %b : tensor<2x3xf64>, tensor<2xf64>"},
  };
}

std::vector<Case> shapeCases() {
  return {
      {"broadcast",
       {"3"},
       "2x3x4",
       "%y = nn.broadcast %a dims = [1] : tensor<3xf64> -> tensor<2x3x4xf64>"},
      {"reshape",
       {"2x6"},
       "2x3x2",
       "%y = nn.reshape %a : tensor<2x6xf64> -> tensor<2x3x2xf64>"},
      {"transpose",
       {"2x3x4"},
       "4x2x3",
       "%y = nn.transpose %a [2, 0, 1] : tensor<2x3x4xf64> -> "
       "tensor<4x2x3xf64>"},
      {"slice",
       {"4x6"},
       "2x3",
       "%y = nn.slice %a [1, 2] [2, 3] [1, 1] : tensor<4x6xf64> -> "
       "tensor<2x3xf64>"},
      {"slice_strided",
       {"5x7"},
       "2x3",
       "%y = nn.slice %a [1, 0] [2, 3] [2, 3] : tensor<5x7xf64> -> "
       "tensor<2x3xf64>"},
      {"slice_reversed",
       {"5x7"},
       "2x3",
       "%y = nn.slice %a [4, 5] [2, 3] [-3, -2] : tensor<5x7xf64> -> "
       "tensor<2x3xf64>"},
      {"concat",
       {"2x3", "2x1"},
       "2x4",
       "%y = nn.concat %a, %b dim = 1 : tensor<2x3xf64>, tensor<2x1xf64> -> "
       "tensor<2x4xf64>"},
      {"pad",
       {"2x3"},
       "3x5",
       "%y = nn.pad %a low = [1, 0] high = [0, 2] value = 3.0 : "
       "tensor<2x3xf64> -> tensor<3x5xf64>"},
  };
}

/// Contractions and reductions.
std::vector<Case> contractionCases() {
  return {
      {"einsum",
       {"2x3x4", "4x5x2"},
       "3x5x2",
       R"(%y = nn.einsum "bsh,hnb->snb" %a, %b : tensor<2x3x4xf64>, tensor<4x5x2xf64> -> tensor<3x5x2xf64>)"},
      {"einsum_outer",
       {"2", "3"},
       "3x2",
       R"(%y = nn.einsum "i,j->ji" %a, %b : tensor<2xf64>, tensor<3xf64> -> tensor<3x2xf64>)"},
      {"reduce_sum",
       {"2x3x4"},
       "3",
       "%y = nn.reduce sum %a dims = [0, 2] : tensor<2x3x4xf64> -> "
       "tensor<3xf64>"},
      {"reduce_max",
       {"2x3x4"},
       "2x4",
       "%y = nn.reduce max %a dims = [1] : tensor<2x3x4xf64> -> "
       "tensor<2x4xf64>"},
      {"reduce_min",
       {"2x3x4"},
       "2x4",
       "%y = nn.reduce min %a dims = [1] : tensor<2x3x4xf64> -> "
       "tensor<2x4xf64>"},
  };
}

/// Operations that select elements by an index.
std::vector<Case> indexingCases() {
  return {
      {"top_k", {"2x6"}, "2x3", R"(
        %y, %i = nn.top_k %a k = 3 : tensor<2x6xf64> -> tensor<2x3xf64>, tensor<2x3xi64>)"},
      {"gather", {"5x3"}, "2x2x3", R"(
        %i = arith.constant dense<[[0, 4], [4, 7]]> : tensor<2x2xi64>
        %y = nn.gather %a, %i dim = 0 : tensor<5x3xf64>, tensor<2x2xi64> -> tensor<2x2x3xf64>)"},
      {"gather_inner", {"3x5"}, "3x2", R"(
        %i = arith.constant dense<[3, 3]> : tensor<2xi64>
        %y = nn.gather %a, %i dim = 1 : tensor<3x5xf64>, tensor<2xi64> -> tensor<3x2xf64>)"},
      {"scatter_add", {"2x2x3"}, "5x3", R"(
        %i = arith.constant dense<[[0, 4], [4, -1]]> : tensor<2x2xi64>
        %y = nn.scatter_add %i, %a dim = 0 : tensor<2x2xi64>, tensor<2x2x3xf64> -> tensor<5x3xf64>)"},
  };
}

/// Softmax, norms and losses, all along rows.
std::vector<Case> rowCases() {
  return {
      {"softmax", {"2x5"}, "2x5", "%y = nn.softmax %a : tensor<2x5xf64>"},
      {"layer_norm", {"2x2x5", "5", "5"}, "2x2x5", R"(
        %y, %m, %r = nn.layer_norm %a, %b, %c epsilon = 1.0e-5
          : (tensor<2x2x5xf64>, tensor<5xf64>, tensor<5xf64>) -> (tensor<2x2x5xf64>, tensor<2x2xf64>, tensor<2x2xf64>))"},
      {"rms_norm", {"2x2x5", "5"}, "2x2x5", R"(
        %y, %r = nn.rms_norm %a, %b epsilon = 1.0e-6
          : (tensor<2x2x5xf64>, tensor<5xf64>) -> (tensor<2x2x5xf64>, tensor<2x2xf64>))"},
      {"cross_entropy", {"2x2x5"}, "2x2", R"(
        %i = arith.constant dense<[[0, 4], [-100, 2]]> : tensor<2x2xi64>
        %y, %l = nn.cross_entropy %a, %i ignore_index = -100
          : (tensor<2x2x5xf64>, tensor<2x2xi64>) -> (tensor<2x2xf64>, tensor<2x2xf64>))"},
  };
}

/// Dropout and rotary embeddings, which depend on the position of an element.
std::vector<Case> positionCases() {
  return {
      {"dropout", {"2x3x4"}, "2x3x4", R"(
        %seed = arith.constant dense<7> : tensor<i64>
        %step = arith.constant dense<3> : tensor<i64>
        %ids = arith.constant dense<[11, 5]> : tensor<2xi64>
        %y = nn.dropout %a, %seed, %step, %ids p = 0.4 op_id = 2 global_shape = [2, 3, 4]
          : tensor<2x3x4xf64>, tensor<2xi64>)"},
      {"rotary", {"2x3x2x4"}, "2x3x2x4", R"(
        %cos = arith.constant dense<[[0.5, 0.25], [1.0, -0.5], [0.0, 2.0]]> : tensor<3x2xf64>
        %sin = arith.constant dense<[[0.75, 1.0], [0.5, 0.5], [-1.0, 0.125]]> : tensor<3x2xf64>
        %y = nn.rotary %a, %cos, %sin : tensor<2x3x2x4xf64>, tensor<3x2xf64>)"},
      {"rotary_interleaved", {"2x3x2x4"}, "2x3x2x4", R"(
        %cos = arith.constant dense<[[0.5, 0.25], [1.0, -0.5], [0.0, 2.0]]> : tensor<3x2xf64>
        %sin = arith.constant dense<[[0.75, 1.0], [0.5, 0.5], [-1.0, 0.125]]> : tensor<3x2xf64>
        %y = nn.rotary %a, %cos, %sin interleaved inverse : tensor<2x3x2x4xf64>, tensor<3x2xf64>)"},
  };
}

std::vector<Case> attentionCases() {
  return {
      {"attention", {"2x3x2x2x4", "2x5x2x4", "2x5x2x3"}, "2x3x2x2x3", R"(
        %y, %lse = nn.attention %a, %b, %c scale = 0.5
          : (tensor<2x3x2x2x4xf64>, tensor<2x5x2x4xf64>, tensor<2x5x2x3xf64>)
          -> (tensor<2x3x2x2x3xf64>, tensor<2x2x2x3xf64>))"},
      {"attention_causal", {"2x4x1x2x3", "2x4x1x3", "2x4x1x3"}, "2x4x1x2x3", R"(
        %y, %lse = nn.attention %a, %b, %c scale = 0.7 causal
          : (tensor<2x4x1x2x3xf64>, tensor<2x4x1x3xf64>, tensor<2x4x1x3xf64>)
          -> (tensor<2x4x1x2x3xf64>, tensor<2x1x2x4xf64>))"},
      {"attention_window", {"1x4x1x2x3", "1x4x1x3", "1x4x1x3"}, "1x4x1x2x3", R"(
        %i = nn.iota dim = 0 : tensor<4xi64>
        %two = arith.constant dense<2> : tensor<4xi64>
        %doc = arith.divsi %i, %two : tensor<4xi64>
        %y, %lse = nn.attention %a, %b, %c segments(%doc, %doc) scale = 0.7 window = 2 softcap = 1.5
          : (tensor<1x4x1x2x3xf64>, tensor<1x4x1x3xf64>, tensor<1x4x1x3xf64>, tensor<4xi64>, tensor<4xi64>)
          -> (tensor<1x4x1x2x3xf64>, tensor<1x1x2x4xf64>))"},
      {"attention_masked", {"1x3x1x1x2", "1x4x1x2", "1x4x1x2"}, "1x3x1x1x2", R"(
        %q = arith.constant dense<[2, 0, 3]> : tensor<3xi64>
        %k = arith.constant dense<[1, 0, 2, 3]> : tensor<4xi64>
        %mask = arith.constant dense<[[true, false, true, true]]> : tensor<1x4xi1>
        %bias = arith.constant dense<[[[[[0.1, 0.2, 0.3, 0.4], [1.0, 0.5, 0.0, 0.0], [0.0, 0.0, -1.0, 1.0]]]]]> : tensor<1x1x1x3x4xf64>
        %y, %lse = nn.attention %a, %b, %c positions(%q, %k) key_mask(%mask) bias(%bias) scale = 0.7 causal
          : (tensor<1x3x1x1x2xf64>, tensor<1x4x1x2xf64>, tensor<1x4x1x2xf64>, tensor<3xi64>, tensor<4xi64>, tensor<1x4xi1>, tensor<1x1x1x3x4xf64>)
          -> (tensor<1x3x1x1x2xf64>, tensor<1x1x1x3xf64>))"},
      {"attention_dropped",
       {"2x3x2x2x4", "2x5x2x4", "2x5x2x3"},
       "2x3x2x2x3",
       R"(
        %keys = arith.constant dense<[[[11, 22], [33, 44]], [[-55, 66], [77, 4294967296]]]> : tensor<2x2x2xi64>
        %qi = arith.constant dense<[4, 0, 2]> : tensor<3xi64>
        %ki = nn.iota dim = 0 : tensor<5xi64>
        %y, %lse = nn.attention %a, %b, %c positions(%qi, %ki) dropout(%keys, %qi, %ki) p = 0.4 scale = 0.5 causal softcap = 2.0
          : (tensor<2x3x2x2x4xf64>, tensor<2x5x2x4xf64>, tensor<2x5x2x3xf64>, tensor<3xi64>, tensor<5xi64>, tensor<2x2x2xi64>, tensor<3xi64>, tensor<5xi64>)
          -> (tensor<2x3x2x2x3xf64>, tensor<2x2x2x3xf64>))"},
  };
}

/// Grouped matrix products, as experts use them.
std::vector<Case> groupedCases() {
  return {
      {"grouped_dot", {"2x3x4", "3x4x2"}, "2x3x2", R"(
        %i = arith.constant dense<[[0, 2, -1], [2, 3, 2]]> : tensor<2x3xi64>
        %y = nn.grouped_dot %a, %b, %i
          : tensor<2x3x4xf64>, tensor<3x4x2xf64>, tensor<2x3xi64> -> tensor<2x3x2xf64>)"},
      {"grouped_dot_transposed", {"5x4", "3x2x4"}, "5x2", R"(
        %i = arith.constant dense<[1, 0, 1, -1, 2]> : tensor<5xi64>
        %y = nn.grouped_dot %a, %b, %i transposed
          : tensor<5x4xf64>, tensor<3x2x4xf64>, tensor<5xi64> -> tensor<5x2xf64>)"},
      {"grouped_outer", {"5x4", "5x2"}, "3x4x2", R"(
        %i = arith.constant dense<[1, 0, 1, 3, 1]> : tensor<5xi64>
        %y = nn.grouped_outer %a, %b, %i
          : tensor<5x4xf64>, tensor<5x2xf64>, tensor<5xi64> -> tensor<3x4x2xf64>)"},
  };
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (auto *family :
       {arithmeticCases, convolutionCases, mathCases, activationCases,
        shapeCases, contractionCases, indexingCases, rowCases, positionCases,
        attentionCases, groupedCases, loopCases})
    for (Case &c : family())
      all.push_back(std::move(c));
  return all;
}

std::string typeOf(const char *shape) {
  return "tensor<" + std::string(shape) + "xf64>";
}

/// Returns the text of @loss of a case: sum(y * weights), and weight 1.
std::string source(const Case &c) {
  std::string text = "func.func @loss(";
  for (size_t i = 0; i < c.arguments.size(); ++i)
    text += std::string("%") + char('a' + i) + ": " + typeOf(c.arguments[i]) +
            " {nn.name = \"" + char('a' + i) +
            "\", nn.role = #nn.role<parameter>}, ";
  text += "%w: " + typeOf(c.result) +
          " {nn.name = \"w\", nn.role = #nn.role<input>}) -> (tensor<f64>, "
          "tensor<f64>) {\n";
  text += std::string(c.body) + "\n";
  std::string letters =
      std::string("ijklmnop")
          .substr(0,
                  1 + std::count(c.result, c.result + strlen(c.result), 'x'));
  text += "%loss = nn.einsum \"" + letters + "," + letters +
          "->\" %y, %w : " + typeOf(c.result) + ", " + typeOf(c.result) +
          " -> tensor<f64>\n";
  text += "%one = arith.constant dense<1.0> : tensor<f64>\n";
  text += "return %loss, %one : tensor<f64>, tensor<f64>\n}\n";
  return text;
}

DialectRegistry makeRegistry() {
  DialectRegistry registry;
  registry.insert<arith::ArithDialect, math::MathDialect, func::FuncDialect,
                  nn::NNDialect>();
  registerInterfaceModels(registry);
  return registry;
}

class Derivative : public testing::TestWithParam<Case> {};

TEST_P(Derivative, AgreesWithCentralDifferences) {
  const Case &c = GetParam();
  MLIRContext context(makeRegistry());
  context.loadAllAvailableDialects();
  auto module = parseSourceString<ModuleOp>(source(c), &context);
  ASSERT_TRUE(module) << source(c);
  PassManager pm(&context);
  pm.addPass(createDifferentiatePass());
  ASSERT_TRUE(succeeded(pm.run(*module)));
  auto loss = module->lookupSymbol<func::FuncOp>("loss");
  auto grad = module->lookupSymbol<func::FuncOp>("loss_grad");

  std::mt19937_64 random(42);
  std::uniform_real_distribution<double> draw(c.low, c.high);
  std::vector<Tensor> arguments;
  for (Type type : loss.getArgumentTypes()) {
    arguments.emplace_back(cast<RankedTensorType>(type));
    for (double &value : arguments.back().floats)
      value = draw(random);
  }
  auto gradients = interpret(grad, arguments);
  ASSERT_TRUE(succeeded(gradients));

  constexpr double h = 1e-5;
  for (size_t arg = 0; arg + 1 < arguments.size(); ++arg)
    for (int64_t i = 0; i < arguments[arg].size(); ++i) {
      double at = arguments[arg].floats[i], value[2];
      for (int side : {0, 1}) {
        arguments[arg].floats[i] = at + (side ? h : -h);
        auto result = interpret(loss, arguments);
        ASSERT_TRUE(succeeded(result));
        value[side] = (*result)[0].floats[0];
      }
      arguments[arg].floats[i] = at;
      double expected = (value[1] - value[0]) / (2 * h);
      double found = (*gradients)[2 + arg].floats[i];
      EXPECT_NEAR(found, expected, 1e-7 * std::max(1.0, std::abs(expected)))
          << "argument " << arg << ", element " << i;
    }
}

INSTANTIATE_TEST_SUITE_P(AllOps, Derivative, testing::ValuesIn(cases()),
                         [](const auto &info) { return info.param.name; });

// A new operation with a derivative must be added to the cases above.
TEST(Derivatives, EveryModelHasACase) {
  MLIRContext context(makeRegistry());
  context.loadAllAvailableDialects();
  std::set<std::string> tested;
  for (const Case &c : cases()) {
    auto module = parseSourceString<ModuleOp>(source(c), &context);
    ASSERT_TRUE(module) << c.name;
    module->walk([&](Operation *op) {
      tested.insert(op->getName().getStringRef().str());
    });
  }
  for (RegisteredOperationName name : context.getRegisteredOperations())
    if (name.hasInterface<DifferentiableInterface>())
      EXPECT_TRUE(tested.count(name.getStringRef().str()))
          << name.getStringRef().str()
          << " has a derivative that no case tests";
}

} // namespace
