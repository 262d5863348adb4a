// Arena memory: mapped pages between inaccessible ones.

#include "memory.h"

#include "error.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

using namespace cleave;

namespace {
// The poison pattern is 0x7ffa, repeated from even addresses. Whole words are
// filled and compared for speed, because whole arenas are processed many times
// in a step.
constexpr char poisonBytes[2] = {char(0xfa), char(0x7f)};
constexpr uint64_t poisonWord = 0x7ffa7ffa7ffa7ffa;
constexpr int64_t wordBytes = sizeof poisonWord;
constexpr char guardByte = char(0xc5);

char poisonAt(const char *at) {
  return poisonBytes[reinterpret_cast<uintptr_t>(at) & 1];
}

bool isWordAligned(const char *at) {
  return reinterpret_cast<uintptr_t>(at) % wordBytes == 0;
}

int64_t pageSize() {
  static const int64_t size = sysconf(_SC_PAGESIZE);
  return size;
}
} // namespace

Memory::Memory(int64_t bytes) : bytes(bytes) {
  int64_t page = pageSize();
  if (bytes > INT64_MAX - 3 * page)
    fail(CLEAVE_OUT_OF_MEMORY,
         "an arena of " + std::to_string(bytes) + " bytes cannot be mapped");
  int64_t usable = (bytes + page - 1) / page * page;
  mappedBytes = usable + 2 * page;
  mapping =
      mmap(nullptr, mappedBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    mapping = nullptr;
    fail(CLEAVE_OUT_OF_MEMORY,
         "an arena of " + std::to_string(bytes) +
             " bytes cannot be mapped: " + std::strerror(errno));
  }
  start = static_cast<char *>(mapping) + page;
  if (usable && mprotect(start, usable, PROT_READ | PROT_WRITE) != 0)
    fail(CLEAVE_OUT_OF_MEMORY,
         "an arena of " + std::to_string(bytes) +
             " bytes cannot be allocated: " + std::strerror(errno));
}

Memory::~Memory() {
  if (mapping)
    munmap(mapping, mappedBytes);
}

void Memory::poison(char *at, int64_t bytes) {
  char *end = at + std::max<int64_t>(bytes, 0);
  for (; at < end && !isWordAligned(at); ++at)
    *at = poisonAt(at);
  int64_t words = (end - at) / wordBytes;
  for (int64_t i = 0; i < words; ++i)
    std::memcpy(at + i * wordBytes, &poisonWord, wordBytes);
  for (at += words * wordBytes; at < end; ++at)
    *at = poisonAt(at);
}

int64_t Memory::slack() const {
  return mapping ? mappedBytes - 2 * pageSize() - bytes : 0;
}

void Memory::guard() {
  if (mapping)
    std::memset(start + bytes, guardByte, slack());
}

bool Memory::guardIntact() const {
  if (!mapping)
    return true;
  const char *end = static_cast<char *>(mapping) + mappedBytes - pageSize();
  for (const char *at = start + bytes; at < end; ++at)
    if (*at != guardByte)
      return false;
  return true;
}

int64_t Memory::touched(const char *at, int64_t bytes) {
  const char *end = at + std::max<int64_t>(bytes, 0);
  auto isPoison = [&] { return end[-1] == poisonAt(end - 1); };
  while (end > at && !isWordAligned(end) && isPoison())
    --end;
  if (isWordAligned(end))
    while (end - at >= wordBytes &&
           std::memcmp(end - wordBytes, &poisonWord, wordBytes) == 0)
      end -= wordBytes;
  while (end > at && isPoison())
    --end;
  return end - at;
}
