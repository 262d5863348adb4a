// The memory of an arena on a device.

#include "storage.h"

#include "memory.h"

#include <algorithm>
#include <vector>

using namespace cleave;
using namespace cleave::cuda;

// Waits for the device before the memory is freed: after a failure, it may
// still use the memory.
DeviceStorage::~DeviceStorage() {
  device.tryUse();
  (void)driver().cuStreamSynchronize(stream);
}

void DeviceStorage::write(int64_t at, const void *from, int64_t bytes) {
  copies.write(data() + at, from, bytes);
}

void DeviceStorage::read(int64_t at, void *to, int64_t bytes) const {
  copies.read(to, data() + at, bytes);
}

void DeviceStorage::zero(int64_t at, int64_t bytes) {
  if (bytes == 0)
    return;
  device.use();
  check(driver().cuMemsetD8Async(address(data() + at), 0, bytes, stream),
        "clearing memory");
  check(driver().cuStreamSynchronize(stream), "clearing memory");
}

// Writes the same bytes as Memory::poison: since arenas begin at even addresses
// on host and device, the pattern of two bytes has the same phase.
void DeviceStorage::poison(int64_t at, int64_t bytes) {
  if (bytes == 0)
    return;
  char pattern[2];
  alignas(2) char pair[2];
  Memory::poison(pair, 2);
  pattern[0] = pair[0];
  pattern[1] = pair[1];
  device.use();
  auto one = [&](int64_t where) {
    check(driver().cuMemsetD8Async(
              address(data() + where),
              static_cast<unsigned char>(pattern[where & 1]), 1, stream),
          "poisoning memory");
  };
  if (at & 1) {
    one(at++);
    --bytes;
  }
  if (bytes & 1)
    one(at + bytes - 1);
  auto both =
      static_cast<unsigned short>(static_cast<unsigned char>(pattern[0]) |
                                  static_cast<unsigned char>(pattern[1]) << 8);
  if (bytes > 1)
    check(driver().cuMemsetD16Async(address(data() + at), both, bytes / 2,
                                    stream),
          "poisoning memory");
}

constexpr unsigned char guardByte = 0xc5;

void DeviceStorage::guard() {
  if (bytes == 0)
    return;
  device.use();
  check(driver().cuMemsetD8Async(address(data() + bytes), guardByte, tail,
                                 stream),
        "guarding memory");
}

bool DeviceStorage::guardIntact() const {
  if (bytes == 0)
    return true;
  unsigned char guard[tail];
  read(bytes, guard, tail);
  return std::all_of(guard, guard + tail,
                     [](unsigned char byte) { return byte == guardByte; });
}

int64_t DeviceStorage::touched(int64_t at, int64_t bytes) const {
  if (bytes <= 0)
    return 0;
  // The first byte of the poison pattern depends on whether its address is
  // even, so the copy begins at an address of the same parity.
  std::vector<char> copy(bytes + 1);
  char *from = copy.data() + (at & 1);
  read(at, from, bytes);
  return Memory::touched(from, bytes);
}
