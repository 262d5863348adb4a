// Tests expressions in the names of dimensions.

#include "Dims.h"

#include <gtest/gtest.h>

using cleave::importer::evaluateDim;

namespace {

const cleave::importer::Bindings bindings = {
    {"past", 3}, {"seq", 5}, {"s0", 7}, {"odd name", 11}};

std::optional<int64_t> value(llvm::StringRef text) {
  std::string unbound;
  return evaluateDim(text, bindings, unbound);
}

TEST(Dims, NamesAndExpressions) {
  EXPECT_EQ(value("seq"), 5);
  EXPECT_EQ(value("odd name"), 11);
  EXPECT_EQ(value("past+seq"), 8);
  EXPECT_EQ(value("past + seq - 1"), 7);
  EXPECT_EQ(value("2*s0"), 14);
  EXPECT_EQ(value("(past+seq)*2"), 16);
  EXPECT_EQ(value("s0//2"), 3);
  EXPECT_EQ(value("s0//0"), std::nullopt);
  EXPECT_EQ(value("past+"), std::nullopt);
  EXPECT_EQ(value("(past"), std::nullopt);
  EXPECT_EQ(value(""), std::nullopt);
}

TEST(Dims, NamesWhatIsUnbound) {
  std::string unbound;
  EXPECT_FALSE(evaluateDim("past + new_tokens", bindings, unbound));
  EXPECT_EQ(unbound, "new_tokens");
  EXPECT_FALSE(evaluateDim("batch", bindings, unbound));
  EXPECT_EQ(unbound, "batch");
}

} // namespace
