// The runtime fills memory with poison, and compares it with poison, word by
// word. For any address and size, the result must equal that of a loop over
// bytes.

#include "memory.h"

#include <gtest/gtest.h>

#include <cstring>

using namespace cleave;

namespace {

constexpr int64_t longest = 33; // several words and partial words at both ends

// The poison byte at an address: poison is 0x7ffa at even addresses, in the
// byte order of this machine.
char poisonAt(const char *at) {
  return reinterpret_cast<uintptr_t>(at) % 2 ? char(0x7f) : char(0xfa);
}

// A buffer with space for `longest` bytes at every offset within a word, and a
// margin around them.
struct Room {
  alignas(8) char bytes[64];
  Room() { std::memset(bytes, 1, sizeof bytes); }
};

TEST(Memory, PoisonFillsWhatItIsGivenAndNoMore) {
  for (int64_t begin = 8; begin < 16; ++begin)
    for (int64_t size = 0; size <= longest; ++size) {
      Room room;
      Memory::poison(room.bytes + begin, size);
      for (int64_t i = 0; i < int64_t(sizeof room.bytes); ++i) {
        bool isInside = i >= begin && i < begin + size;
        ASSERT_EQ(room.bytes[i], isInside ? poisonAt(room.bytes + i) : 1)
            << size << " bytes from " << begin << ", at " << i;
      }
    }
}

TEST(Memory, TouchedIsAfterTheLastByteThatDiffers) {
  for (int64_t begin = 8; begin < 16; ++begin)
    for (int64_t size = 0; size <= longest; ++size) {
      Room room;
      char *at = room.bytes + begin;
      Memory::poison(at, size);
      ASSERT_EQ(Memory::touched(at, size), 0) << size << " from " << begin;
      for (int64_t last = 0; last < size; ++last) {
        Memory::poison(at, size);
        at[0] = 0;
        at[last] ^= 1;
        ASSERT_EQ(Memory::touched(at, size), last + 1)
            << size << " from " << begin;
      }
    }
}

// Memory that has the bytes of poison in the wrong order counts as written.
TEST(Memory, TouchedIsWhatHasTheBytesInTheWrongOrder) {
  Room room;
  std::memset(room.bytes, 0x7f, sizeof room.bytes);
  EXPECT_EQ(Memory::touched(room.bytes, 64), 63);
  std::memset(room.bytes, char(0xfa), sizeof room.bytes);
  EXPECT_EQ(Memory::touched(room.bytes, 64), 64);
}

TEST(Memory, NothingIsFilledOrFoundWhereThereIsNothing) {
  Room room;
  Memory::poison(room.bytes, -8);
  EXPECT_EQ(room.bytes[0], 1);
  EXPECT_EQ(Memory::touched(room.bytes, -8), 0);
  EXPECT_EQ(Memory::touched(room.bytes, 0), 0);
}

// Poison is NaN in each floating-point type.
TEST(Memory, PoisonIsNoNumber) {
  alignas(8) char bytes[8];
  Memory::poison(bytes, sizeof bytes);
  float narrow;
  double wide;
  std::memcpy(&narrow, bytes, sizeof narrow);
  std::memcpy(&wide, bytes, sizeof wide);
  EXPECT_NE(narrow, narrow);
  EXPECT_NE(wide, wide);
}

} // namespace
