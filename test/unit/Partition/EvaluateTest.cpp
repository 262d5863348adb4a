// Compares the reference evaluation of arith and math operations with results
// computed by hand.

#include "Context.h"

#include "cleave/Interpreter/Interpreter.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace cleave;

namespace {

TEST(Evaluate, EveryElementwiseRuleHasAReference) {
  TestContext test;
  int count = 0;
  for (RegisteredOperationName name : test.context.getRegisteredOperations()) {
    if (!name.hasInterface<ShardingRuleInterface>() ||
        name.getStringRef() == "arith.constant" ||
        name.getStringRef() == nn::ScanOp::getOperationName())
      continue;
    ++count;
    // (The interpreter itself runs constants and the region of a scan.)
    EXPECT_TRUE(name.hasInterface<EvaluableInterface>())
        << name.getStringRef().str();
  }
  EXPECT_GT(count, 100);
}

/// Runs `op`, the text of one operation on %x and %y of the given types, and
/// returns the result as doubles.
std::vector<double> run(const std::string &op, const std::string &type,
                        const std::string &result, std::vector<double> x,
                        std::vector<double> y) {
  TestContext test;
  std::string text = "func.func @f(%x: " + type + ", %y: " + type + ") -> " +
                     result + " {\n  %0 = " + op + "\n  return %0 : " + result +
                     "\n}";
  OwningOpRef<ModuleOp> module =
      parseSourceString<ModuleOp>(text, &test.context);
  if (!module) {
    ADD_FAILURE() << text << test.diagnostics;
    return {};
  }
  auto func = *module->getOps<func::FuncOp>().begin();
  std::vector<Tensor> arguments;
  for (const std::vector<double> &values : {x, y}) {
    Tensor &tensor = arguments.emplace_back(
        cast<RankedTensorType>(func.getArgumentTypes()[arguments.size()]));
    for (auto [index, value] : llvm::enumerate(values))
      if (tensor.isFloat())
        tensor.floats[index] = value;
      else
        tensor.ints[index] = int64_t(value);
  }
  FailureOr<std::vector<Tensor>> results = interpret(func, arguments);
  if (failed(results)) {
    ADD_FAILURE() << text << test.diagnostics;
    return {};
  }
  std::vector<double> values(results->front().floats.begin(),
                             results->front().floats.end());
  for (int64_t value : results->front().ints)
    values.push_back(double(value));
  return values;
}

using Values = std::vector<double>;

Values ints(const std::string &name, Values x, Values y) {
  std::string type = "tensor<" + std::to_string(x.size()) + "xi64>";
  return run(name + " %x, %y : " + type, type, type, x, y);
}

TEST(Evaluate, IntegersRoundAndWrapAsTheirNamesSay) {
  Values x = {7, -7, 7, -7}, y = {2, 2, -2, -2};
  EXPECT_EQ(ints("arith.divsi", x, y), Values({3, -3, -3, 3}));
  EXPECT_EQ(ints("arith.floordivsi", x, y), Values({3, -4, -4, 3}));
  EXPECT_EQ(ints("arith.ceildivsi", x, y), Values({4, -3, -3, 4}));
  EXPECT_EQ(ints("arith.remsi", x, y), Values({1, -1, 1, -1}));
  EXPECT_EQ(ints("arith.divui", {7, 9}, {2, -1}), Values({3, 0}));
  EXPECT_EQ(ints("arith.remui", {7, 9}, {2, -1}), Values({1, 9}));
  EXPECT_EQ(ints("arith.maxui", {-1, 3}, {1, 4}), Values({-1, 4}));
  EXPECT_EQ(ints("arith.minui", {-1, 3}, {1, 4}), Values({1, 3}));
  EXPECT_EQ(ints("arith.shli", {3, -3}, {2, 1}), Values({12, -6}));
  EXPECT_EQ(ints("arith.shrsi", {-8, 8}, {1, 2}), Values({-4, 2}));
  EXPECT_EQ(ints("arith.shrui", {-1, 8}, {63, 2}), Values({1, 2}));
  EXPECT_EQ(ints("math.ipowi", {3, -2, 2, -1}, {4, 3, -1, -3}),
            Values({81, -8, 0, -1}));
}

TEST(Evaluate, Floats) {
  auto two = [](const std::string &name, Values x, Values y) {
    std::string type = "tensor<" + std::to_string(x.size()) + "xf64>";
    return run(name + " %x, %y : " + type, type, type, x, y);
  };
  auto one = [](const std::string &name, Values x) {
    std::string type = "tensor<" + std::to_string(x.size()) + "xf64>";
    return run(name + " %x : " + type, type, type, x, x);
  };
  EXPECT_EQ(two("arith.remf", {7, -7}, {4, 4}), Values({3, -3}));
  EXPECT_EQ(two("arith.maxnumf", {1, NAN}, {2, 3}), Values({2, 3}));
  EXPECT_EQ(two("arith.minnumf", {1, NAN}, {2, 3}), Values({1, 3}));
  EXPECT_EQ(two("math.copysign", {1, -2}, {-3, 4}), Values({-1, 2}));
  EXPECT_EQ(two("math.atan2", {0, 0}, {1, -1}), Values({0, M_PI}));
  EXPECT_EQ(one("math.round", {0.5, -1.5, 2.25}), Values({1, -2, 2}));
  EXPECT_EQ(one("math.trunc", {1.75, -1.75}), Values({1, -1}));
  EXPECT_EQ(one("math.exp2", {3, -1}), Values({8, 0.5}));
  EXPECT_EQ(one("math.log2", {8, 0.5}), Values({3, -1}));
  EXPECT_EQ(one("math.log10", {100}), Values({2}));
  EXPECT_NEAR(one("math.cbrt", {-27})[0], -3, 1e-15);
  for (const char *name : {"math.acos", "math.asin", "math.atan", "math.atanh",
                           "math.sinh", "math.cosh", "math.tan", "math.erfc",
                           "math.expm1", "math.log1p", "math.asinh"}) {
    double at0 =
        name == std::string("math.acos") ? M_PI / 2
        : name == std::string("math.cosh") || name == std::string("math.erfc")
            ? 1
            : 0;
    EXPECT_EQ(one(name, {0}), Values({at0})) << name;
  }
  EXPECT_EQ(one("math.acosh", {1}), Values({0}));
  EXPECT_EQ(run("math.fma %x, %y, %y : tensor<1xf64>", "tensor<1xf64>",
                "tensor<1xf64>", {2}, {3}),
            Values({9}));
}

TEST(Evaluate, QuestionsAndBits) {
  double infinity = std::numeric_limits<double>::infinity();
  auto asked = [&](const std::string &name) {
    return run(name + " %x : tensor<4xf64>", "tensor<4xf64>", "tensor<4xi1>",
               {0, 1, infinity, NAN}, {0, 0, 0, 0});
  };
  EXPECT_EQ(asked("math.isfinite"), Values({1, 1, 0, 0}));
  EXPECT_EQ(asked("math.isinf"), Values({0, 0, 1, 0}));
  EXPECT_EQ(asked("math.isnan"), Values({0, 0, 0, 1}));
  EXPECT_EQ(asked("math.isnormal"), Values({0, 1, 0, 0}));
  EXPECT_EQ(run("arith.bitcast %x : tensor<2xf32> to tensor<2xi32>",
                "tensor<2xf32>", "tensor<2xi32>", {1, -2}, {0, 0}),
            Values({0x3F800000, -0x40000000}));
  EXPECT_EQ(run("arith.bitcast %x : tensor<1xi32> to tensor<1xf32>",
                "tensor<1xi32>", "tensor<1xf32>", {0x3F800000}, {0}),
            Values({1}));
  EXPECT_EQ(run("math.absi %x : tensor<2xi64>", "tensor<2xi64>",
                "tensor<2xi64>", {-3, 3}, {0, 0}),
            Values({3, 3}));
}

} // namespace
