// Strided tensors whose elements are known at import.

#include "HostTensor.h"

#include <gtest/gtest.h>

using namespace cleave::importer;

namespace {

HostTensor iota(llvm::ArrayRef<int64_t> shape) {
  HostTensor tensor(Element::I64, shape);
  for (int64_t i = 0; i < tensor.size(); ++i)
    tensor.setInt(i, i);
  return tensor;
}

using Ints = llvm::SmallVector<int64_t>;

TEST(HostTensor, Views) {
  HostTensor x = iota({2, 3});
  EXPECT_EQ(x.transposed({1, 0}).ints(), Ints({0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(x.sliced({0, 2}, {2, 2}, {1, -1}).ints(), Ints({2, 1, 5, 4}));
  EXPECT_EQ(x.transposed({1, 0}).reshaped({6}).ints(),
            Ints({0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(iota({3}).broadcastTo({2, 3}).ints(), Ints({0, 1, 2, 0, 1, 2}));
}

TEST(HostTensor, RepeatedDimensionsCostNothing) {
  HostTensor rows = iota({4096}).reshaped({1, 1, 4096, 1});
  HostTensor columns = iota({4096}).reshaped({1, 1, 1, 4096});
  HostTensor batch = HostTensor::splat(Element::I64, {64, 1, 1, 1}, 0);
  llvm::Expected<HostTensor> mask =
      mapInts(Element::Bool, {&rows, &columns, &batch},
              [](const int64_t *v) { return int64_t(v[1] <= v[0] + v[2]); });
  ASSERT_TRUE(bool(mask));
  EXPECT_EQ(mask->shape(), llvm::ArrayRef<int64_t>({64, 1, 4096, 4096}));
  EXPECT_EQ(mask->strides()[0], 0);
  EXPECT_EQ(mask->intAt(mask->positionOf({63, 0, 7, 7})), 1);
  EXPECT_EQ(mask->intAt(mask->positionOf({63, 0, 7, 8})), 0);
}

TEST(HostTensor, FindsRepetition) {
  HostTensor x(Element::F32, {3, 2});
  for (int64_t i = 0; i < 3; ++i)
    x.setFloat(2 * i, 0.5);
  HostTensor small = x.compressed();
  EXPECT_EQ(small.strides()[0], 0);
  EXPECT_NE(small.strides()[1], 0);
  EXPECT_EQ(small.floats(), x.floats());
  EXPECT_FALSE(x.isSplat());
  EXPECT_TRUE(x.sliced({0, 0}, {3, 1}, {1, 1}).isSplat());
}

TEST(HostTensor, RoundsToItsType) {
  HostTensor x(Element::F32, {});
  x.setFloat(0, 0.1);
  EXPECT_EQ(x.floats()[0], double(0.1f));
  EXPECT_EQ(x.cast(Element::BF16).floats()[0], 0.10009765625);
  EXPECT_EQ(HostTensor::ofInt(300).cast(Element::U8).ints()[0], 44);
}

TEST(HostTensor, KeepsLargeIntegers) {
  constexpr int64_t large = (int64_t(1) << 53) + 1;
  HostTensor x = HostTensor::ofInt(large);
  EXPECT_EQ(x.reshaped({1}).broadcastTo({3}).compact().ints()[2], large);
  // 2^64 - 1 is not read as a negative number.
  HostTensor u = HostTensor::ofInt(-1, Element::U64);
  EXPECT_EQ(u.floats()[0], 18446744073709551616.0);
  EXPECT_EQ(u.cast(Element::F32).floats()[0], 18446744073709551616.0);
  EXPECT_EQ(u.cast(Element::F64).cast(Element::U64).ints()[0], -1);
  // The integer is rounded once. Rounding it to double first would give 2^60.
  EXPECT_EQ(HostTensor::ofInt((int64_t(1) << 60) + (int64_t(1) << 36) + 1)
                .cast(Element::F32)
                .floats()[0],
            1152921642045800448.0);
}

TEST(HostTensor, ZerosOfTwoSignsDiffer) {
  HostTensor x(Element::F32, {2});
  x.setFloat(1, -0.0);
  EXPECT_FALSE(x.isSplat());
  EXPECT_TRUE(std::signbit(x.compressed().floats()[1]));
}

TEST(HostTensor, LeastAndGreatest) {
  EXPECT_EQ(leastOf(Element::I8).ints()[0], -128);
  EXPECT_EQ(greatestOf(Element::I32).ints()[0], 2147483647);
  EXPECT_EQ(leastOf(Element::U64).ints()[0], 0);
  EXPECT_EQ(greatestOf(Element::U16).ints()[0], 65535);
  EXPECT_EQ(greatestOf(Element::Bool).ints()[0], 1);
  EXPECT_EQ(leastOf(Element::Bool).ints()[0], 0);
}

TEST(HostTensor, CountsSaturate) {
  EXPECT_EQ(product({int64_t(1) << 40, int64_t(1) << 40}),
            std::numeric_limits<int64_t>::max());
  EXPECT_EQ(product({int64_t(1) << 40, 0, int64_t(1) << 40}), 0);
  // A splat takes any shape without a copy.
  HostTensor ones = HostTensor::splat(Element::I64, {1 << 20, 1 << 20}, 1);
  EXPECT_TRUE(ones.isReshapedInPlace({int64_t(1) << 40}));
  EXPECT_EQ(ones.reshaped({int64_t(1) << 40}).strides()[0], 0);
}

TEST(HostTensor, RefusesWhatDoesNotBroadcast) {
  HostTensor a = iota({3}), b = iota({4});
  llvm::Expected<HostTensor> sum = mapInts(
      Element::I64, {&a, &b}, [](const int64_t *v) { return v[0] + v[1]; });
  ASSERT_FALSE(bool(sum));
  EXPECT_EQ(llvm::toString(sum.takeError()),
            "shapes [3] and [4] do not broadcast");
}

} // namespace
