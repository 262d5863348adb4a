// Tests the importer's table of ONNX operators.

#include "cleave/Import/ONNX/OpTable.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace {

// The table has one row per operator and opset. If two rows had the same
// operator and opset, the sort order would decide which of them is used.
TEST(OpTable, OneRowForEachOperatorAndOpset) {
  const std::vector<cleave::OnnxOp> &rows = cleave::onnxOps();
  for (size_t i = 0; i < rows.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      EXPECT_FALSE(rows[i].name == rows[j].name &&
                   std::max(rows[i].first, rows[j].first) <=
                       std::min(rows[i].last, rows[j].last))
          << rows[i].name.str() << " from opset " << rows[i].first;
}

} // namespace
