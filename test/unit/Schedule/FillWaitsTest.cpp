// Moving independent compute into the windows of exposed collectives: small
// hand-written cases, and random cases that are checked against invariants.

#include "FillWaits.h"

#include "llvm/ADT/STLExtras.h"
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <tuple>

using namespace cleave::schedule;

namespace {

using Order = std::vector<size_t>;

/// A list of commands that read the results of other commands, in a valid
/// order.
struct Program {
  size_t compute(double seconds, std::vector<size_t> reads) {
    size_t at = list.size();
    Placed &placed = list.emplace_back();
    placed.seconds = seconds;
    placed.moves = true;
    for (size_t other : reads) {
      placed.after.push_back(other);
      list[other].before.push_back(at);
    }
    return at;
  }
  size_t collective(std::vector<size_t> reads) { return compute(0, reads); }
  std::vector<Placed> list;
};

// A layer of the backward pass: the gradient of the weight matrix, the gradient
// of the input, which is all-reduced, and the command that reads the
// all-reduced gradient.
TEST(FillWaits, TheMatrixsGradientWaitsUntilTheInputsIsOnItsWay) {
  Program program;
  size_t dy = program.compute(1, {});
  size_t dw = program.compute(4, {dy});
  size_t dx = program.compute(4, {dy});
  size_t sum = program.collective({dx});
  size_t reader = program.compute(1, {sum});
  EXPECT_EQ(fillWaits(program.list, {{sum, reader, 4}}),
            (Order{dy, dx, sum, dw, reader}));
}

TEST(FillWaits, NoMoreMovesThanIsWaitedFor) {
  Program program;
  size_t x = program.compute(1, {});
  size_t far = program.compute(4, {x});
  size_t near = program.compute(4, {x});
  size_t dx = program.compute(4, {x});
  size_t sum = program.collective({dx});
  size_t reader = program.compute(1, {sum});
  EXPECT_EQ(fillWaits(program.list, {{sum, reader, 3}}),
            (Order{x, far, dx, sum, near, reader}));
}

// Commands that read the result of a moved command move with it, including a
// collective that sends the result.
TEST(FillWaits, ReadersComeAlong) {
  Program program;
  size_t x = program.compute(1, {});
  size_t dw = program.compute(4, {x});
  size_t norm = program.compute(1, {dw});
  size_t scatter = program.collective({dw});
  size_t dx = program.compute(4, {x});
  size_t sum = program.collective({dx});
  size_t reader = program.compute(1, {sum});
  size_t last = program.compute(1, {norm, scatter, reader});
  EXPECT_EQ(fillWaits(program.list, {{sum, reader, 9}}),
            (Order{x, dx, sum, dw, norm, scatter, reader, last}));
}

// Collectives whose operands do not move stay where they are.
TEST(FillWaits, OtherCollectivesStay) {
  Program program;
  size_t x = program.compute(1, {});
  size_t other = program.collective({x});
  size_t dw = program.compute(4, {x});
  size_t dx = program.compute(4, {x});
  size_t sum = program.collective({dx});
  size_t reader = program.compute(1, {sum});
  program.compute(1, {other, dw, reader});
  EXPECT_EQ(fillWaits(program.list, {{sum, reader, 9}}),
            (Order{x, other, dx, sum, dw, reader, 6}));
}

TEST(FillWaits, WhatFollowsTheReaderComesEarlier) {
  Program program;
  size_t x = program.compute(1, {});
  size_t sum = program.collective({x});
  size_t reader = program.compute(1, {sum});
  size_t later = program.compute(1, {reader});
  size_t shared = program.compute(5, {x});
  size_t last = program.compute(1, {later, shared});
  EXPECT_EQ(fillWaits(program.list, {{sum, reader, 4}}),
            (Order{x, sum, shared, reader, later, last}));
}

TEST(FillWaits, WhatHidesAnotherStays) {
  Program program;
  size_t x = program.compute(1, {});
  size_t first = program.collective({x});
  size_t hides = program.compute(4, {x});
  size_t between = program.compute(1, {first});
  size_t second = program.collective({between});
  size_t reader = program.compute(1, {second});
  program.compute(1, {hides, reader});
  program.list[hides].fills = true;
  EXPECT_EQ(fillWaits(program.list, {{second, reader, 4}}),
            (Order{0, 1, 2, 3, 4, 5, 6}));
}

// Each of two exposed collectives gets its own compute commands to overlap
// with.
TEST(FillWaits, TwoWaitsShareWhatThereIs) {
  Program program;
  size_t x = program.compute(1, {});
  size_t dw1 = program.compute(4, {x}), dw2 = program.compute(4, {x});
  size_t dx = program.compute(4, {x});
  size_t sum = program.collective({dx});
  size_t norm = program.compute(1, {sum});
  size_t gather = program.collective({norm});
  size_t reader = program.compute(1, {gather});
  EXPECT_EQ(fillWaits(program.list, {{sum, norm, 4}, {gather, reader, 4}}),
            (Order{x, dx, sum, dw2, norm, gather, dw1, reader}));
}

TEST(FillWaits, RandomProgramsKeepWhatComesFirst) {
  std::mt19937 random(3);
  auto below = [&](size_t n) { return size_t(random() % n); };
  for (int trial = 0; trial < 500; ++trial) {
    Program program;
    std::vector<Wait> waits;
    size_t count = 5 + below(60);
    for (size_t at = 0; at < count; ++at) {
      std::vector<size_t> reads;
      for (size_t k = below(3); at > 0 && k > 0; --k)
        if (size_t other = at - 1 - below(std::min<size_t>(at, 12));
            !llvm::is_contained(reads, other))
          reads.push_back(other);
      program.compute(below(3) ? double(below(5)) : 0, reads);
      program.list.back().moves = below(8) > 0;
      program.list.back().fills = below(8) == 0;
    }
    for (size_t at = 0; at < count; ++at)
      if (!program.list[at].before.empty() && program.list[at].seconds == 0)
        waits.push_back(
            {at, *llvm::min_element(program.list[at].before), 1.0 + below(6)});
    llvm::sort(waits, [](const Wait &a, const Wait &b) {
      return std::tie(a.reader, a.collective) <
             std::tie(b.reader, b.collective);
    });
    Order order = fillWaits(program.list, waits), sorted = order;
    llvm::sort(sorted);
    Order all(count);
    std::iota(all.begin(), all.end(), 0);
    ASSERT_EQ(sorted, all);
    std::vector<size_t> position(count);
    for (size_t at = 0; at < count; ++at)
      position[order[at]] = at;
    for (size_t at = 0; at < count; ++at)
      for (size_t other : program.list[at].after)
        ASSERT_LT(position[other], position[at]) << "trial " << trial;
    // Commands that must not move keep their order.
    size_t last = 0;
    for (size_t at : order)
      if (!program.list[at].moves) {
        ASSERT_GE(at, last);
        last = at;
      }
  }
}

} // namespace
