// The table of operators.

#include "cleave/Import/ONNX/OpTable.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace {

// With two rows for one operator and opset, sorting would decide between them.
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
