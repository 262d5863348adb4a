// Bounds the amount of work for deciding which operations are fused into a
// kernel.

#include "../../../lib/Fusion/FormKernels.h"

#include "Harness.h"

#include "gtest/gtest.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::test;

namespace {

/// The optimizer update of a model with this many layers: the norm of all
/// gradients as a chain of sums, a factor computed from the norm, and an
/// optimizer operation for each parameter.
std::string updateOf(int layers) {
  const char *shapes[] = {"96x96x",  "96x", "96x384x", "384x",
                          "384x96x", "96x", "96x96x",  "96x"};
  std::string arguments = "%lr: tensor<f32>, %step: tensor<i64>", results,
              types, norms, updates;
  int number = 0;
  for (int layer = 0; layer < layers; ++layer)
    for (StringRef shape : shapes) {
      std::string n = std::to_string(number++);
      std::string type = ("tensor<" + shape + "f32>").str();
      for (const char *name : {"p", "m", "v", "g"})
        arguments += ", %" + (name + n) + ": " + type;
      norms += "%q" + n + " = arith.mulf %g" + n + ", %g" + n + " : " + type +
               "\n%s" + n + " = nn.reduce sum %q" + n +
               (shape.count('x') == 2 ? " dims = [0, 1]" : " dims = [0]") +
               " : " + type + " -> tensor<f32>\n";
      if (number > 1)
        norms += "%t" + n + " = arith.addf %" + (number > 2 ? "t" : "s") +
                 std::to_string(number - 2) + ", %s" + n + " : tensor<f32>\n";
      updates += "%a" + n + ", %b" + n + ", %c" + n + " = nn.adamw %p" + n +
                 ", %m" + n + ", %v" + n + ", %g" + n +
                 ", %factor, %lr, %step beta1 = 0.9 beta2 = 0.999 epsilon = "
                 "1.0e-8 weight_decay = 0.01 : " +
                 type + ", tensor<f32>\n";
      for (const char *name : {"a", "b", "c"}) {
        results += (results.empty() ? "%" : ", %") + (name + n);
        types += (types.empty() ? "" : ", ") + type;
      }
    }
  return "func.func @update(" + arguments + ") -> (" + types + ") {\n" + norms +
         "%factor = math.rsqrt %t" + std::to_string(number - 1) +
         " : tensor<f32>\n" + updates + "return " + results + " : " + types +
         "\n}";
}

struct Work {
  int64_t plans = 0;
  int kernels = 0;
};

/// A program like the gradient of a convolution's input: a chain of additions,
/// with one slice per element of the window. All operations have the same
/// location.
std::string sumOfTaps(int taps) {
  std::string n = std::to_string(taps), body, last = "zero";
  for (int tap = 0; tap < taps; ++tap) {
    std::string k = std::to_string(tap);
    body += "%s" + k + " = nn.slice %x [" + k +
            ", 0, 0] [1, 8, 16] [1, 1, 1] " + ": tensor<" + n +
            "x8x16xf32> -> tensor<1x8x16xf32> loc(\"conv\")\n" + "%t" + k +
            " = arith.addf %" + last + ", %s" + k +
            " : tensor<1x8x16xf32> loc(\"conv\")\n";
    last = "t" + k;
  }
  return "func.func @taps(%x: tensor<" + n +
         "x8x16xf32>) -> tensor<1x8x16xf32> {\n%zero = arith.constant "
         "dense<0.0> : tensor<1x8x16xf32>\n" +
         body + "return %" + last + " : tensor<1x8x16xf32>\n}";
}

Work workOf(const std::string &text) {
  auto module = parse(text);
  kernels::Grouping grouping(*module->getOps<func::FuncOp>().begin());
  EXPECT_TRUE(succeeded(grouping.run()));
  Work work{grouping.numPlans()};
  for (const kernels::Unit *unit : grouping.schedule())
    work.kernels += unit->isKernel;
  return work;
}

} // namespace

// All optimizer kernels read one scalar, the factor that is computed from the
// norm of all gradients. Although this value has many readers, the fusion
// compares each reader with only a few others, so its work is linear in the
// size of the model.
TEST(Grouping, WorkIsProportionalToLayers) {
  Work small = workOf(updateOf(8)), large = workOf(updateOf(32));
  EXPECT_LE(large.plans, 4.2 * small.plans);
  EXPECT_LE(large.plans, 12 * 8 * 32);
  // The large parameters are summed in two steps, and a kernel has at most
  // eight sums or eight parameters.
  EXPECT_LE(large.kernels, 6 * 32);
}

// Planning takes time proportional to the kernel's size, so the number of plans
// must not depend on the window's size.
TEST(Grouping, PlansDoNotGrowWithTheWindow) {
  Work small = workOf(sumOfTaps(9)), large = workOf(sumOfTaps(81));
  EXPECT_EQ(large.plans, small.plans);
  EXPECT_EQ(large.kernels, 1);
}
