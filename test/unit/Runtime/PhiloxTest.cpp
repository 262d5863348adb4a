// Dropout's random numbers.

#include "cleave/philox.h"

#include "gtest/gtest.h"

using namespace cleave;

// Compares with the test vectors of the Random123 library.
TEST(Philox, KnownAnswers) {
  auto expect = [](uint64_t key, philox::Block counter, philox::Block want) {
    philox::Block found = philox::blockOf(key, counter);
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(found.words[i], want.words[i]);
  };
  expect(0, {}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
  expect(~uint64_t(0), {{~0u, ~0u, ~0u, ~0u}},
         {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
  expect(0x299f31d0a4093822, {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
}

TEST(Philox, LeastKept) {
  EXPECT_EQ(philox::leastKept(0.5), uint64_t(1) << 31);
  EXPECT_EQ(philox::leastKept(0x1p-33), 1u); // not a multiple of 2^-32
  EXPECT_EQ(philox::leastKept(1 - 0x1p-53), uint64_t(1) << 32);
}
