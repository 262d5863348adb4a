// Tests the interpreter of pipelines: values sent between stages, accumulated
// gradients, wrong results if the memory slot of a microbatch is reused too
// early, and stages that do not fit together.

#include "cleave/Check/Engine.h"
#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/Pipe/IR/Pipe.h"
#include "cleave/Interfaces/Interfaces.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace mlir;
using namespace cleave;
using namespace cleave::check;

namespace {

// Stage 0 computes y = w x. Stage 1 sums y and returns the cotangent y * y, so
// the gradient of w is the sum of x (w x)^2. The update adds the gradient to w,
// and adds the gradient, summed over both stages, to a number that both stages
// hold.
constexpr const char *program = R"(
module attributes {pipe.schedule = #pipe.schedule<axis = "pipeline", link = "intra", position = 0,
                                    name = "custom", table = "TABLE">} {
  dist.mesh @mesh <["pipeline"=1]>
  func.func @load.0(%x: tensor<2xf64> {nn.name = "x", nn.role = #nn.role<input>})
      -> (tensor<2xf64> {nn.name = "x.stored", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"store">})
      attributes {pipe.stage = 0 : i64} {
    return %x : tensor<2xf64>
  }
  func.func @F.0(%w: tensor<2xf64> {nn.name = "w", nn.role = #nn.role<parameter>},
                 %x: tensor<2xf64> {nn.name = "x.slot", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"F:READ_X">})
      -> (tensor<2xf64> {nn.name = "cut.0.0", nn.role = #nn.role<activation>, pipe.slot = #pipe.slot<"F:send_f">})
      attributes {pipe.stage = 0 : i64} {
    %y = arith.mulf %w, %x : tensor<2xf64>
    return %y : tensor<2xf64>
  }
  func.func @B.0(%x: tensor<2xf64> {nn.name = "x.slot", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"F:READ_X">},
                 %dy: tensor<2xf64> {nn.name = "cut.0.0.grad", nn.role = #nn.role<cotangent>, pipe.slot = #pipe.slot<"recv_b:B">},
                 %sum: tensor<2xf64> {nn.name = "w", nn.role = #nn.role<gradient>})
      -> (tensor<2xf64> {nn.name = "w", nn.role = #nn.role<gradient>})
      attributes {pipe.stage = 0 : i64} {
    %dw = arith.mulf %x, %dy : tensor<2xf64>
    %new = arith.addf %sum, %dw : tensor<2xf64>
    return %new : tensor<2xf64>
  }
  func.func @update.0.0(%g: tensor<2xf64> {nn.name = "w", nn.role = #nn.role<gradient>})
      -> (tensor<2xf64> {nn.name = "sum.0.0", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"update">})
      attributes {pipe.stage = 0 : i64, pipe.sums = [#pipe.sum<operand = "sum.0.0", result = "sum.0.0.all">]} {
    return %g : tensor<2xf64>
  }
  func.func @update.1.0(%all: tensor<2xf64> {nn.name = "sum.0.0.all", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"update">},
                        %w: tensor<2xf64> {nn.name = "w", nn.role = #nn.role<parameter>})
      -> (tensor<2xf64> {nn.name = "w", nn.role = #nn.role<parameter>})
      attributes {pipe.stage = 0 : i64} {
    %new = arith.addf %w, %all : tensor<2xf64>
    return %new : tensor<2xf64>
  }
  func.func @F.1(%y: tensor<2xf64> {nn.name = "cut.0.0", nn.role = #nn.role<activation>, pipe.slot = #pipe.slot<"recv_f:READ_Y">},
                 %sum: tensor<2xf64> {nn.name = "loss", nn.role = #nn.role<loss>})
      -> (tensor<2xf64> {nn.name = "loss", nn.role = #nn.role<loss>})
      attributes {pipe.stage = 1 : i64} {
    %new = arith.addf %sum, %y : tensor<2xf64>
    return %new : tensor<2xf64>
  }
  func.func @B.1(%y: tensor<2xf64> {nn.name = "cut.0.0", nn.role = #nn.role<activation>, pipe.slot = #pipe.slot<"recv_f:READ_Y">})
      -> (tensor<2xf64> {nn.name = "cut.0.0.grad", nn.role = #nn.role<cotangent>, pipe.slot = #pipe.slot<"B:send_b">})
      attributes {pipe.stage = 1 : i64} {
    %dy = arith.mulf %y, %y : tensor<2xf64>
    return %dy : tensor<2xf64>
  }
  func.func @update.0.1(%loss: tensor<2xf64> {nn.name = "loss", nn.role = #nn.role<loss>})
      -> (tensor<2xf64> {nn.name = "sum.0.0", nn.role = #nn.role<residual>, pipe.slot = #pipe.slot<"update">})
      attributes {pipe.stage = 1 : i64, pipe.sums = [#pipe.sum<operand = "sum.0.0", result = "sum.0.0.all">]} {
    return %loss : tensor<2xf64>
  }
}
)";

constexpr int microbatches = 3;

class PipelineEngineTest : public testing::Test {
protected:
  PipelineEngineTest() {
    DialectRegistry registry;
    registry.insert<arith::ArithDialect, dist::DistDialect, func::FuncDialect,
                    nn::NNDialect, pipe::PipeDialect>();
    registerInterfaceModels(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
  }

  // Runs a step and returns whether it succeeded.
  bool run(std::vector<std::pair<std::string, std::string>> replacements) {
    std::string text = program;
    for (auto &[from, to] : replacements)
      for (size_t at; (at = text.find(from)) != std::string::npos;)
        text.replace(at, from.size(), to);
    module = parseSourceString<ModuleOp>(text, &context);
    EXPECT_TRUE(module);
    auto made = makeInterpreterEngine(*module);
    if (failed(made))
      return false;
    engine = std::move(*made);
    set("parameter w", {2, 3});
    set("gradient w", {0, 0});
    set("loss loss", {0, 0});
    for (int k = 0; k < microbatches; ++k) {
      set("input x", {k + 1.0, k + 2.0});
      if (failed(engine->run("loss_grad")))
        return false;
    }
    return succeeded(engine->run("update"));
  }

  std::optional<Port> find(const std::string &key) {
    for (auto func : module->getOps<func::FuncOp>())
      for (const Port &port : argumentsOf(func))
        if (port.key() == key)
          return port;
    return std::nullopt;
  }

  void set(const std::string &key, std::vector<double> values) {
    std::optional<Port> port = find(key);
    ASSERT_TRUE(port) << key;
    Tensor tensor(port->type);
    tensor.floats = std::move(values);
    ASSERT_TRUE(succeeded(engine->set(*port, tensor)));
  }

  std::vector<double> get(const std::string &key) {
    auto got = engine->get(*find(key));
    EXPECT_TRUE(succeeded(got));
    return got->whole.floats;
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  std::unique_ptr<Engine> engine;
};

const std::string oneForward =
    "0F0,0F1,0B0,0F2,0B1,0B2\\0A1F0,1B0,1F1,1B1,1F2,1B2\\0A";
const std::string allForward =
    "0F0,0F1,0F2,0B0,0B1,0B2\\0A1F0,1F1,1F2,1B0,1B1,1B2\\0A";

TEST_F(PipelineEngineTest, StagesComputeWhatTheModelDoes) {
  for (const std::string &table : {oneForward, allForward}) {
    ASSERT_TRUE(run({{"TABLE", table}, {"READ_X", "B"}, {"READ_Y", "B"}}));
    std::vector<double> loss = {0, 0}, gradient = {0, 0}, w = {2, 3};
    for (int k = 0; k < microbatches; ++k)
      for (int i = 0; i < 2; ++i) {
        double x = k + 1 + i, y = w[i] * x;
        loss[i] += y;
        gradient[i] += x * y * y;
      }
    EXPECT_EQ(get("loss loss"), loss);
    EXPECT_EQ(get("gradient w"), gradient);
    for (int i = 0; i < 2; ++i)
      w[i] += gradient[i] + loss[i];
    EXPECT_EQ(get("parameter w"), w);
  }
}

// Stage 0 keeps its input for the forward pass only, so later microbatches
// overwrite it and the gradient is wrong.
TEST_F(PipelineEngineTest, ASlotThatIsReusedTooEarlyShows) {
  ASSERT_TRUE(run({{"TABLE", oneForward}, {"READ_X", "B"}, {"READ_Y", "B"}}));
  std::vector<double> right = get("gradient w");
  ASSERT_TRUE(run({{"TABLE", oneForward}, {"READ_X", "F"}, {"READ_Y", "B"}}));
  EXPECT_NE(get("gradient w"), right);
}

// A message is received into a memory slot that an action still reads.
TEST_F(PipelineEngineTest, APlaceOfAReceiveIsPoisoned) {
  ASSERT_TRUE(run({{"TABLE", allForward}, {"READ_X", "B"}, {"READ_Y", "F"}}));
  EXPECT_EQ(get("loss loss"), std::vector<double>({12, 27}));
  std::vector<double> wrong = get("gradient w");
  ASSERT_TRUE(run({{"TABLE", allForward}, {"READ_X", "B"}, {"READ_Y", "B"}}));
  EXPECT_NE(get("gradient w"), wrong);
}

TEST_F(PipelineEngineTest, StagesThatCannotBeJoinedAreRefused) {
  std::string said;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    said += diagnostic.str();
    return success();
  });
  EXPECT_FALSE(run({{"TABLE", "0F0\\0A"}, {"READ_X", "B"}, {"READ_Y", "B"}}));
  EXPECT_NE(said.find("pipe.schedule"), std::string::npos) << said;
  said.clear();
  EXPECT_FALSE(
      run({{"TABLE", oneForward},
           {"READ_X", "B"},
           {"READ_Y", "B"},
           {"[#pipe.sum<operand = \"sum.0.0\", result = \"sum.0.0.all\">]} {\n "
            "   return %loss",
            "[]} {\n    return %loss"}}));
  EXPECT_NE(said.find("not all of the stages"), std::string::npos) << said;
}

} // namespace
