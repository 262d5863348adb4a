// Tests how `cleave check` compares the tensors of a sharded and an unsharded
// program: the error metric, and the error limits of its two parts. The exact
// part compares results in f64, the rounding part compares results in the
// training precision.

#include "cleave/Check/Compare.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/MLIRContext.h"

#include "gtest/gtest.h"

#include <cmath>

using namespace cleave;
using namespace cleave::check;

namespace {

struct CompareTest : testing::Test {
  mlir::MLIRContext context;
  mlir::Builder builder{&context};

  Tensor tensor(std::vector<int64_t> shape, std::vector<double> values) {
    Tensor result(mlir::RankedTensorType::get(shape, builder.getF64Type()));
    result.floats = std::move(values);
    return result;
  }
  Named named(std::string name, TensorKind kind, std::vector<int64_t> shape,
              std::vector<double> values) {
    return {std::move(name), kind, tensor(shape, std::move(values)), 0, {}};
  }
};

TEST_F(CompareTest, DifferenceFindsTheWorstElement) {
  Difference found = difference(tensor({2, 3}, {1, 2, 3, 4, 5, 6}),
                                tensor({2, 3}, {1, 2, 3, 4, 5.5, -8}));
  EXPECT_EQ(found.largest, 14);
  EXPECT_EQ(found.worst, 5);
  EXPECT_EQ(found.magnitude, 8);
  EXPECT_EQ(unflatten(5, {2, 3}), (std::vector<int64_t>{1, 2}));
}

TEST_F(CompareTest, EqualTensorsHaveNoWorstElement) {
  Tensor a = tensor({2}, {1, NAN});
  Difference found = difference(a, a);
  EXPECT_EQ(found.largest, 0);
  EXPECT_EQ(found.worst, -1);
  EXPECT_EQ(found.magnitude, 1);
}

TEST_F(CompareTest, NaNOnOneSideIsInfinitelyWrong) {
  Difference found = difference(tensor({2}, {NAN, 5}), tensor({2}, {0, 1}));
  EXPECT_TRUE(std::isinf(found.largest));
  EXPECT_EQ(found.worst, 0);
}

TEST_F(CompareTest, OppositeInfinitiesDiffer) {
  EXPECT_TRUE(std::isinf(
      difference(tensor({1}, {INFINITY}), tensor({1}, {-INFINITY})).largest));
  EXPECT_EQ(
      difference(tensor({1}, {INFINITY}), tensor({1}, {INFINITY})).largest, 0);
}

TEST_F(CompareTest, ErrorIsRelativeToTheLargestElement) {
  NamedTensors reference = {named("w", TensorKind::Gradient, {2}, {1e-3, 4})};
  NamedTensors sharded = {named("w", TensorKind::Gradient, {2}, {1.5e-3, 4})};
  auto reports = compareExact(sharded, reference, 1, {});
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_DOUBLE_EQ(reports[0].relError, 0.5e-3 / 4);
  EXPECT_EQ(reports[0].worstIndex, std::vector<int64_t>{0});
  EXPECT_EQ(reports[0].limit, 1e-9);
  EXPECT_FALSE(reports[0].pass());
}

TEST_F(CompareTest, FloorIsAShareOfTheLargestOfTheKind) {
  // In exact arithmetic the gradient of the attention's key bias is zero; in
  // floating point it consists of rounding errors.
  NamedTensors reference = {named("big", TensorKind::Gradient, {1}, {2}),
                            named("noise", TensorKind::Gradient, {1}, {1e-17}),
                            named("alone", TensorKind::Norm, {1}, {1e-17})};
  NamedTensors sharded = {named("big", TensorKind::Gradient, {1}, {2}),
                          named("noise", TensorKind::Gradient, {1}, {3e-17}),
                          named("alone", TensorKind::Norm, {1}, {3e-17})};
  auto reports = compareExact(sharded, reference, 1, {});
  EXPECT_DOUBLE_EQ(reports[1].relError, 2e-17 / 2e-6);
  EXPECT_TRUE(reports[1].belowFloor);
  EXPECT_TRUE(reports[1].pass());
  EXPECT_FALSE(reports[0].belowFloor);
  // The large gradient does not affect the error of the norm: the floor of a
  // tensor is a fraction of the largest magnitude among the tensors of its own
  // kind (gradients, norms, ...).
  EXPECT_DOUBLE_EQ(reports[2].relError, 2);
}

TEST_F(CompareTest, NoiseIsAllowedSixtyFourTimes) {
  NamedTensors reference = {named("big", TensorKind::Gradient, {1}, {2}),
                            named("noise", TensorKind::Gradient, {1}, {1e-11})};
  reference[0].noise = 1e-16;
  reference[1].noise = 1e-10; // of terms that are larger than all gradients
  auto reportOf = [&](double big, double noise) {
    NamedTensors sharded = {named("big", TensorKind::Gradient, {1}, {big}),
                            named("noise", TensorKind::Gradient, {1}, {noise})};
    return compareExact(sharded, reference, 1, {});
  };
  EXPECT_TRUE(reportOf(2, 6e-9)[1].pass());
  EXPECT_TRUE(reportOf(2, 6e-9)[1].belowFloor);
  EXPECT_FALSE(reportOf(2, 7e-9)[1].pass());
  // A noisy gradient does not raise the limit of another gradient, whose terms
  // do not cancel.
  EXPECT_FALSE(reportOf(2 + 3e-9, 0)[0].pass());
  EXPECT_FALSE(reportOf(2, 0)[0].belowFloor);
}

TEST_F(CompareTest, NoiseAboveTheCapIsNotAllowed) {
  // The noise of a gradient is the size of its rounding errors. A difference of
  // 64 times the noise is allowed, up to a cap of 1e-8 of the largest gradient.
  // The largest gradient here is 2, so the cap is 2e-8: 64 * 2.9e-10 is below
  // the cap, 64 * 3.3e-10 is above it.
  auto reportOf = [&](double noise, double off) {
    NamedTensors reference = {named("big", TensorKind::Gradient, {1}, {2}),
                              named("b", TensorKind::Gradient, {1}, {0})};
    reference[1].noise = noise;
    NamedTensors sharded = {named("big", TensorKind::Gradient, {1}, {2}),
                            named("b", TensorKind::Gradient, {1}, {off})};
    return compareExact(sharded, reference, 1, {})[1];
  };
  EXPECT_TRUE(reportOf(2.9e-10, 1.8e-8).pass());
  EXPECT_FALSE(reportOf(2.9e-10, 1.8e-8).aboveNoiseCap);
  EXPECT_FALSE(reportOf(3.3e-10, 1.8e-8).pass());
  EXPECT_TRUE(reportOf(3.3e-10, 1.8e-8).aboveNoiseCap);
  // If 64 times the noise of a gradient is above the cap, the noise is not
  // allowed for. The error limit is then the same as without noise: 1e-9 times
  // the floor, which is 1e-6 of the largest gradient.
  EXPECT_TRUE(reportOf(3.3e-10, 1.9e-15).pass());
  EXPECT_FALSE(reportOf(3.3e-10, 2.1e-15).pass());
}

TEST_F(CompareTest, NoiseAboveTheCapIsNoExcuseForRounding) {
  NamedTensors reference = {named("w", TensorKind::Gradient, {1}, {1}),
                            named("b", TensorKind::Gradient, {1}, {1e-12})};
  auto reportOf = [&](double noise) {
    reference[1].noise = noise;
    NamedTensors ours = {named("w", TensorKind::Gradient, {1}, {1}),
                         named("b", TensorKind::Gradient, {1}, {1e-2})};
    return compareRounding(ours, reference, reference, 0x1p-23, {})[1];
  };
  EXPECT_TRUE(reportOf(1e-10).pass());
  EXPECT_FALSE(reportOf(1e-9).pass());
  EXPECT_TRUE(reportOf(1e-9).aboveNoiseCap);
}

TEST_F(CompareTest, WhatIsSmallerThanItsNoiseHasNoYardstick) {
  // In f32 the noise (the size of rounding errors) is 2^29 times as large as in
  // f64. The error of the unsharded program is only one random sample of that
  // noise, so it cannot be the yardstick.
  NamedTensors reference = {named("w", TensorKind::Gradient, {1}, {1}),
                            named("b", TensorKind::Gradient, {1}, {1e-12})};
  reference[0].noise = 1e-16;
  reference[1].noise = 1e-12;
  double epsilon = 0x1p-23, allowed = 64 * 0x1p29 * 1e-12;
  auto passes = [&](double w, double b) {
    NamedTensors ours = {named("w", TensorKind::Gradient, {1}, {w}),
                         named("b", TensorKind::Gradient, {1}, {b})};
    auto reports = compareRounding(ours, reference, reference, epsilon, {});
    return reports[0].pass() && reports[1].pass();
  };
  EXPECT_TRUE(passes(1, 0.9 * allowed));
  EXPECT_FALSE(passes(1, 1.1 * allowed));
  EXPECT_FALSE(passes(1 + 2e-6, 0));
}

TEST_F(CompareTest, MissingTensorFails) {
  NamedTensors reference = {named("w", TensorKind::State, {1}, {0})};
  auto reports = compareExact({}, reference, 1, {});
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_FALSE(reports[0].pass());
  EXPECT_FALSE(compareRounding({}, reference, reference, 1e-7, {})[0].pass());
}

TEST_F(CompareTest, OtherShapeFails) {
  NamedTensors reference = {named("w", TensorKind::State, {2}, {0, 0})};
  NamedTensors sharded = {named("w", TensorKind::State, {1, 2}, {0, 0})};
  EXPECT_FALSE(compareExact(sharded, reference, 1, {})[0].pass());
}

TEST_F(CompareTest, SeveralStepsHaveTheirOwnLimit) {
  NamedTensors reference = {named("w", TensorKind::Parameter, {1}, {1})};
  NamedTensors sharded = {named("w", TensorKind::Parameter, {1}, {1 + 5e-9})};
  EXPECT_FALSE(compareExact(sharded, reference, 1, {})[0].pass());
  EXPECT_TRUE(compareExact(sharded, reference, 5, {})[0].pass());
}

TEST_F(CompareTest, RoundingIsMeasuredByTheUnshardedError) {
  NamedTensors reference = {named("w", TensorKind::Output, {2}, {1, 1})};
  NamedTensors unsharded = {named("w", TensorKind::Output, {2}, {1, 1 + 1e-5})};
  NamedTensors good = {named("w", TensorKind::Output, {2}, {1 - 4e-5, 1})};
  NamedTensors bad = {named("w", TensorKind::Output, {2}, {1 - 5e-5, 1})};
  auto report = compareRounding(good, unsharded, reference, 1e-7, {})[0];
  EXPECT_NEAR(report.limit, 4.1e-5, 1e-12);
  EXPECT_TRUE(report.pass());
  EXPECT_FALSE(compareRounding(bad, unsharded, reference, 1e-7, {})[0].pass());
}

TEST_F(CompareTest, ScalarsHaveSixteenEpsilons) {
  NamedTensors exact = {named("loss", TensorKind::Loss, {}, {1})};
  double epsilon = 1.1920929e-07;
  auto report = compareRounding(exact, exact, exact, epsilon, {})[0];
  EXPECT_DOUBLE_EQ(report.limit, 1e-6 + 16 * epsilon);
}

TEST_F(CompareTest, ReplicasAreReportedByName) {
  NamedTensors tensors = {named("a", TensorKind::Output, {1}, {1}),
                          named("b", TensorKind::Output, {1}, {1}),
                          named("c", TensorKind::Output, {1}, {1})};
  EXPECT_EQ(worstReplica(tensors).largest, 0);
  tensors[1].replicaDifference = 1e-300;
  EXPECT_EQ(worstReplica(tensors).name, "b");
  tensors[2].replicaDifference = NAN;
  EXPECT_EQ(worstReplica(tensors).name, "c");
}

TEST_F(CompareTest, WorstElementNamesItsRank) {
  NamedTensors reference = {named("w", TensorKind::Output, {4}, {1, 1, 1, 1})};
  NamedTensors sharded = {named("w", TensorKind::Output, {4}, {1, 1, 2, 1})};
  sharded[0].rankOf = [](int64_t element) { return element / 2; };
  EXPECT_EQ(compareExact(sharded, reference, 1, {})[0].rank, 1);
}

} // namespace
