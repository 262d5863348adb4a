// Tests that every nn operation implements all interfaces: sharding, cost,
// evaluation, kernel lowering, and differentiation. Operations without a
// derivative are listed.

#include "Context.h"

#include "gtest/gtest.h"

#include <set>

using namespace mlir;
using namespace cleave;

namespace {

/// Operations without a derivative: gradients, optimizers, and operations that
/// are piecewise constant.
const std::set<std::string> withoutDerivative = {"nn.adamw",
                                                 "nn.argmax",
                                                 "nn.attention_grad",
                                                 "nn.check_index",
                                                 "nn.conv_filter_grad",
                                                 "nn.conv_input_grad",
                                                 "nn.cross_entropy_grad",
                                                 "nn.gelu_grad",
                                                 "nn.iota",
                                                 "nn.layer_norm_grad",
                                                 "nn.pool_grad",
                                                 "nn.position_in_expert",
                                                 "nn.rms_norm_grad",
                                                 "nn.sgd"};

TEST(Interfaces, EveryOperationAnswersAllQuestions) {
  TestContext test;
  int count = 0;
  for (RegisteredOperationName name : test.context.getRegisteredOperations()) {
    std::string text = name.getStringRef().str();
    if (name.getDialectNamespace() != "nn" ||
        name.hasTrait<OpTrait::IsTerminator>())
      continue;
    ++count;
    EXPECT_TRUE(name.hasInterface<ShardingRuleInterface>())
        << text << " has no sharding rule";
    EXPECT_TRUE(name.hasInterface<CostInterface>()) << text << " has no cost";
    // The interpreter runs the operations in the region of a scan, and
    // nn-outline-scans makes them a function, in which they are lowered.
    bool isScan = text == nn::ScanOp::getOperationName();
    EXPECT_TRUE(isScan || name.hasInterface<EvaluableInterface>())
        << text << " has no reference";
    EXPECT_TRUE(isScan || name.hasInterface<LoweringInterface>())
        << text << " has no lowering";
    EXPECT_EQ(name.hasInterface<DifferentiableInterface>(),
              !withoutDerivative.count(text))
        << text;
  }
  EXPECT_GT(count, 30);
}

} // namespace
