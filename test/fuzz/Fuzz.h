// Helpers that the fuzzers share. Each fuzzer is a libFuzzer target that passes
// any bytes to a reader, that is, a function that parses a file. The reader may
// answer only with a value or an error message. A crash, a sanitizer's report,
// an exception of another type, more than two seconds or more than one GiB ends
// the fuzzer.
#ifndef CLEAVE_TEST_FUZZ_H
#define CLEAVE_TEST_FUZZ_H

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>

namespace cleave::fuzz {

/// A file in memory, for readers that take a path.
class MemoryFile {
public:
  explicit MemoryFile(std::string_view bytes)
      : descriptor(::memfd_create("fuzz", MFD_CLOEXEC)) {
    while (!bytes.empty()) {
      ssize_t size = ::write(descriptor, bytes.data(), bytes.size());
      if (size <= 0)
        std::abort();
      bytes.remove_prefix(static_cast<size_t>(size));
    }
  }
  ~MemoryFile() { ::close(descriptor); }
  MemoryFile(const MemoryFile &) = delete;
  MemoryFile &operator=(const MemoryFile &) = delete;

  std::string path() const {
    return "/proc/self/fd/" + std::to_string(descriptor);
  }

private:
  int descriptor;
};

/// Aborts the fuzzer if `holds` is false. `holds` is a condition that the code
/// under test guarantees for every input; `what` describes it for the message.
inline void require(bool holds, const char *what) {
  if (holds)
    return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

/// Requires that an error message is one line of printable characters.
inline void requireMessage(std::string_view text) {
  require(!text.empty(), "a refusal has a message");
  for (char c : text)
    require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f,
            "no control bytes in a message");
}

inline std::string_view textOf(const uint8_t *data, size_t size) {
  return {reinterpret_cast<const char *>(data), size};
}

} // namespace cleave::fuzz

#endif // CLEAVE_TEST_FUZZ_H
