// Copies between the host and a device, and their order with the compute
// operations before and after them.

#include "Recorded.h"
#include "host_copies.h"

#include <gtest/gtest.h>
#include <random>
#include <vector>

using namespace cleave;
using namespace cleave::cuda;
using namespace cleave::test;

namespace {
constexpr int64_t piece = HostCopies::pieceBytes;

std::vector<char> randomBytes(int64_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::vector<char> bytes(count);
  for (char &byte : bytes)
    byte = static_cast<char>(engine());
  return bytes;
}

class HostCopiesTest : public Recorded {
protected:
  void SetUp() override {
    Recorded::SetUp();
    compute = makeStream();
    copies.emplace(Device::of(0), compute.get());
  }
  void TearDown() override {
    check(driver().cuStreamSynchronize(compute.get()), "waiting");
    copies.reset();
    Recorded::TearDown();
  }

  void copyOnCompute(const DeviceMemory &to, const DeviceMemory &from) {
    check(driver().cuMemcpyDtoDAsync(address(to.data()), address(from.data()),
                                     from.size(), compute.get()),
          "copying");
  }
  std::vector<char> read(const DeviceMemory &from) {
    std::vector<char> seen(from.size());
    copies->read(seen.data(), from.data(), from.size());
    return seen;
  }

  Stream compute;
  std::optional<HostCopies> copies;
};

TEST_F(HostCopiesTest, BytesComeBackAsTheyWere) {
  for (int64_t bytes : {int64_t(0), int64_t(1), int64_t(1000), piece - 1, piece,
                        piece + 1, 2 * piece, 3 * piece + 5}) {
    DeviceMemory memory(bytes + 10, "some bytes");
    std::vector<char> sent = randomBytes(bytes, 7), seen(bytes + 2, 'x');
    copies->write(memory.data() + 3, sent.data(), bytes);
    copies->read(seen.data() + 1, memory.data() + 3, bytes);
    EXPECT_TRUE(std::equal(sent.begin(), sent.end(), seen.begin() + 1))
        << bytes;
    EXPECT_EQ(seen.front(), 'x');
    EXPECT_EQ(seen.back(), 'x');
    std::vector<char> around = read(memory);
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(around[i], 0);
    EXPECT_EQ(around[bytes + 3], 0);
  }
}

TEST_F(HostCopiesTest, WhatIsWrittenMayBeOverwrittenAtOnce) {
  DeviceMemory a(2 * piece + 1, "a"), b(2 * piece + 1, "b");
  const std::vector<char> sent = randomBytes(a.size(), 1);
  std::vector<char> given = sent;
  copies->write(a.data(), given.data(), a.size());
  std::fill(given.begin(), given.end(), 0);
  copyOnCompute(b, a); // after the write
  EXPECT_EQ(read(b), sent);
}

TEST_F(HostCopiesTest, ComputeIsNotOvertaken) {
  DeviceMemory a(1000, "a"), b(1000, "b");
  const std::vector<char> first = randomBytes(1000, 1),
                          second = randomBytes(1000, 2);
  copies->write(a.data(), first.data(), 1000);
  copyOnCompute(b, a);
  copies->write(a.data(), second.data(), 1000); // after the copy
  EXPECT_EQ(read(b), first);
  EXPECT_EQ(read(a), second);
  copyOnCompute(b, a);
  EXPECT_EQ(read(b), second);
}

TEST_F(HostCopiesTest, NothingIsOnItsWayAtTheEnd) {
  DeviceMemory a(100, "a");
  const std::vector<char> sent = randomBytes(100, 1);
  copies->write(a.data(), sent.data(), 100);
  copies->finish();
  // The host has waited for the copy, so other streams need not wait for it.
  std::vector<char> seen(100);
  Stream other = makeStream();
  check(driver().cuMemcpyDtoHAsync(seen.data(), address(a.data()), 100,
                                   other.get()),
        "reading");
  check(driver().cuStreamSynchronize(other.get()), "reading");
  EXPECT_EQ(seen, sent);
}

// Uses a simulated device that runs no operation before the host waits for it.
TEST(HostCopiesDeathTest, PinnedMemoryIsNotReusedTooEarly) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  auto sendAndReceive = [] {
    setenv("CLEAVE_RECORDER_LAZY", "1", 1);
    Device::of(0).use();
    Stream compute = makeStream();
    HostCopies copies(Device::of(0), compute.get());
    DeviceMemory memory(3 * piece + 1, "some bytes");
    std::vector<char> sent = randomBytes(memory.size(), 1), seen(sent.size());
    copies.write(memory.data(), sent.data(), memory.size());
    copies.read(seen.data(), memory.data(), memory.size());
    _exit(seen == sent ? 0 : 1);
  };
  EXPECT_EXIT(sendAndReceive(), testing::ExitedWithCode(0), "");
}
} // namespace
