// Element types: conversions preserve values or report those that do not fit.
#include "cleave/io/Array.h"
#include "TestFolder.h"
#include "cleave/io/Error.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

using namespace cleave;
using cleave::test::messageOf;

namespace {

double throughType(double value, const char *type) {
  Array narrow = makeArray(type, {1});
  convertElements("f64", reinterpret_cast<const std::byte *>(&value), type,
                  narrow.bytes.data(), 1, "x");
  double result;
  convertElements(type, narrow.bytes.data(), "f64",
                  reinterpret_cast<std::byte *>(&result), 1, "x");
  return result;
}

TEST(Array, FloatsRoundToNearestEven) {
  EXPECT_EQ(throughType(1.0 + 0x1p-8, "bf16"), 1.0);          // tie to even
  EXPECT_EQ(throughType(1.0 + 3 * 0x1p-8, "bf16"), 1.015625); // tie to even
  EXPECT_EQ(throughType(-2.5, "bf16"), -2.5);
  EXPECT_EQ(throughType(1.0 + 0x1p-11, "f16"), 1.0);
  EXPECT_EQ(throughType(1.0 + 3 * 0x1p-11, "f16"), 1.0 + 0x1p-9);
  EXPECT_EQ(throughType(65504, "f16"), 65504);
  EXPECT_EQ(throughType(INFINITY, "f16"), INFINITY);
  EXPECT_EQ(throughType(0x1p-24, "f16"), 0x1p-24); // smallest subnormal
  EXPECT_EQ(throughType(0x1p-14, "f16"), 0x1p-14); // smallest normal
  EXPECT_EQ(throughType(0x1.ff8p-15, "f16"), 0x1.ff8p-15);
  EXPECT_EQ(throughType(-0.0, "f16"), 0.0);
  for (const char *type : {"f16", "bf16", "f32"})
    EXPECT_TRUE(std::isnan(throughType(NAN, type))) << type;
}

TEST(Array, IntegersThatDoNotFitAreRefused) {
  int64_t values[] = {255, 256};
  auto *bytes = reinterpret_cast<const std::byte *>(values);
  std::byte out[2];
  convertElements("i64", bytes, "u8", out, 1, "x");
  EXPECT_EQ(out[0], std::byte(255));
  EXPECT_EQ(messageOf<InputError>(
                [&] { convertElements("i64", bytes, "u8", out, 2, "ids"); }),
            "ids: element 1 is 256, which does not fit into u8");
  EXPECT_NE(messageOf<InputError>([&] {
              convertElements("i64", bytes, "f32", out, 1, "ids");
            }).find("has element type i64, expected f32"),
            std::string::npos);
}

TEST(Array, FloatsThatDoNotFitAreRefused) {
  auto refused = [](double value, const char *type) {
    return messageOf<InputError>([&] { throughType(value, type); });
  };
  EXPECT_EQ(refused(65520, "f16"),
            "x: element 0 is 65520, which does not fit into f16");
  EXPECT_EQ(refused(-1e39, "f32"),
            "x: element 0 is -1e+39, which does not fit into f32");
  EXPECT_EQ(refused(3.4e38, "bf16"),
            "x: element 0 is 3.4e+38, which does not fit into bf16");
}

TEST(Array, FindsTheFirstNonFiniteElement) {
  Array array = makeArray("f32", {2, 3});
  EXPECT_EQ(firstNonFinite("f32", array.bytes.data(), 6), -1);
  array.as<float>()[4] = INFINITY;
  EXPECT_EQ(firstNonFinite("f32", array.bytes.data(), 6), 4);
}

} // namespace
