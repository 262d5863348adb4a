// The programs of RandomShardingTest.cpp.

#ifndef CLEAVE_TEST_PARTITION_RANDOMSHARDINGCASES_H
#define CLEAVE_TEST_PARTITION_RANDOMSHARDINGCASES_H

#include <cstdint>
#include <vector>

namespace cleave::test {

struct ShardingCase {
  const char *name;
  std::vector<const char *> arguments; // "2x3xf64"; i64 draws from [0, limit)
  std::vector<const char *> results;
  const char *body; // defines %y0, %y1, ... from %a, %b, ...
  int64_t limit = 5;
};

/// Returns all programs, ordered by kind. The index of a case is the seed of
/// its shardings, so append new kinds at the end.
std::vector<ShardingCase> shardingCases();

} // namespace cleave::test

#endif // CLEAVE_TEST_PARTITION_RANDOMSHARDINGCASES_H
