// Tests how a sequence of items is cut into stages: compares the chosen cut
// with all possible cuts.

#include "BalanceStages.h"

#include "gtest/gtest.h"

#include <cmath>
#include <functional>
#include <random>

using namespace cleave::stage;

namespace {

Line randomLine(std::mt19937_64 &random, int64_t items) {
  Line line;
  for (int64_t i = 0; i < items; ++i) {
    line.seconds.push_back(random() % 4 ? double(1 + random() % 5) : 0);
    line.memory.push_back(random() % 7);
    line.crossings.push_back({int64_t(1 + random() % 4), 1});
  }
  line.crossings[0] = {};
  return line;
}

struct Result {
  double slowest = 0;
  Crossing crossing;
};

Result resultOf(const Line &line, llvm::ArrayRef<int64_t> begins) {
  Result result;
  double seconds = 0;
  size_t next = 0;
  for (size_t item = 0; item < line.seconds.size(); ++item) {
    if (next < begins.size() && begins[next] == int64_t(item)) {
      result.slowest = std::max(result.slowest, seconds);
      result.crossing = result.crossing + line.crossings[item];
      seconds = 0;
      ++next;
    }
    seconds += line.seconds[item];
  }
  result.slowest = std::max(result.slowest, seconds);
  return result;
}

/// Calls `visit` with all cuts in which every stage takes some time.
void forEachCut(const Line &line, int64_t stages,
                std::function<void(llvm::ArrayRef<int64_t>)> visit) {
  llvm::SmallVector<int64_t> begins;
  std::function<void(int64_t)> go = [&](int64_t from) {
    auto passes = [&](int64_t a, int64_t b) {
      for (int64_t i = a; i < b; ++i)
        if (line.seconds[i] > 0)
          return true;
      return false;
    };
    int64_t count = line.seconds.size();
    if (int64_t(begins.size()) == stages - 1) {
      if (passes(from, count))
        visit(begins);
      return;
    }
    for (int64_t to = from + 1; to < count; ++to)
      if (passes(from, to)) {
        begins.push_back(to);
        go(to);
        begins.pop_back();
      }
  };
  go(0);
}

TEST(Balance, IsBestOfAllCuts) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    Line line = randomLine(random, 3 + round % 9);
    int64_t points = countCutPoints(line);
    for (int64_t stages = 1; stages <= points + 1; ++stages) {
      double least = INFINITY;
      forEachCut(line, stages, [&](llvm::ArrayRef<int64_t> begins) {
        least = std::min(least, resultOf(line, begins).slowest);
      });
      ASSERT_LT(least, INFINITY);
      Result best{INFINITY, {INT64_MAX, 0}};
      forEachCut(line, stages, [&](llvm::ArrayRef<int64_t> begins) {
        Result result = resultOf(line, begins);
        if (result.slowest > least * (1 + kSlack) * (1 + 1e-9))
          return;
        if (result.crossing < best.crossing ||
            (result.crossing == best.crossing && result.slowest < best.slowest))
          best = result;
      });
      Cuts cuts = balance(line, stages);
      ASSERT_EQ(int64_t(cuts.begins.size()), stages - 1);
      Result found = resultOf(line, cuts.begins);
      EXPECT_EQ(found.crossing.bytes, best.crossing.bytes);
      EXPECT_NEAR(found.slowest, best.slowest, 1e-6);
      EXPECT_NEAR(cuts.slowest, found.slowest, 1e-9);
    }
    // Tries one stage more than there can be.
    bool any = false;
    if (points >= 0)
      forEachCut(line, points + 2,
                 [&](llvm::ArrayRef<int64_t>) { any = true; });
    EXPECT_FALSE(any);
  }
}

TEST(Balance, SpreadsMemoryAmongEquals) {
  // Six items that take equally long are cut into two stages. The cut is at
  // half of the time, although the first item needs more memory than all others
  // together.
  Line line;
  for (int i = 0; i < 6; ++i) {
    line.seconds.push_back(1);
    line.memory.push_back(i == 0 ? 9 : 1);
    line.crossings.push_back({i ? 5 : 0, i ? 1 : 0});
  }
  EXPECT_EQ(balance(line, 2).begins[0], 3);
  // If one item takes nearly all of the time, the cuts between the other items
  // can balance memory.
  line.seconds[5] = 100;
  EXPECT_EQ(balance(line, 3).begins[1], 5);
  EXPECT_EQ(balance(line, 3).begins[0], 1);
}

TEST(Follow, IsBestOfAllCuts) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 200; ++round) {
    Line line = randomLine(random, 3 + round % 7);
    for (double &seconds : line.seconds)
      seconds = 1; // each item may be a stage
    int64_t count = line.seconds.size();
    for (int64_t stages = 1; stages <= std::min<int64_t>(count, 4); ++stages) {
      llvm::SmallVector<llvm::SmallVector<int64_t, 1>> wants(count);
      for (auto &want : wants)
        if (random() % 3)
          want.push_back(random() % stages);
      auto strangersOf = [&](llvm::ArrayRef<int64_t> begins) {
        int64_t displaced = 0;
        for (int64_t item = 0; item < count; ++item) {
          int64_t stage = llvm::upper_bound(begins, item) - begins.begin();
          displaced += !wants[item].empty() && wants[item][0] != stage;
        }
        return displaced;
      };
      int64_t fewest = INT64_MAX, bytes = INT64_MAX;
      forEachCut(line, stages, [&](llvm::ArrayRef<int64_t> begins) {
        int64_t displaced = strangersOf(begins);
        int64_t crossing = resultOf(line, begins).crossing.bytes;
        if (std::pair(displaced, crossing) < std::pair(fewest, bytes))
          std::tie(fewest, bytes) = std::pair(displaced, crossing);
      });
      Cuts cuts = follow(line, wants, stages);
      ASSERT_EQ(int64_t(cuts.begins.size()), stages - 1);
      EXPECT_EQ(strangersOf(cuts.begins), fewest);
      EXPECT_EQ(cuts.displaced, fewest);
      EXPECT_EQ(resultOf(line, cuts.begins).crossing.bytes, bytes);
    }
  }
}

} // namespace
