// Every operation of nn answers all questions: how it splits, what it costs,
// what it computes, how it becomes a kernel; and its derivative, unless it has
// none.

#include "Context.h"

#include "gtest/gtest.h"

#include <set>

using namespace mlir;
using namespace cleave;

namespace {

/// Gradients, optimizers, and what is constant where it is not undefined.
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
    if (name.getDialectNamespace() != "nn")
      continue;
    ++count;
    EXPECT_TRUE(name.hasInterface<ShardingRuleInterface>())
        << text << " has no sharding rule";
    EXPECT_TRUE(name.hasInterface<CostInterface>()) << text << " has no cost";
    EXPECT_TRUE(name.hasInterface<EvaluableInterface>())
        << text << " has no reference";
    EXPECT_TRUE(name.hasInterface<LoweringInterface>())
        << text << " has no lowering";
    EXPECT_EQ(name.hasInterface<DifferentiableInterface>(),
              !withoutDerivative.count(text))
        << text;
  }
  EXPECT_GT(count, 30);
}

} // namespace
