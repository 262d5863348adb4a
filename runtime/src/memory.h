// The memory of one arena of one rank. The pages before and after it are
// inaccessible, so that a kernel that runs past either end faults instead of
// overwriting other memory.
#ifndef CLEAVE_RUNTIME_MEMORY_H
#define CLEAVE_RUNTIME_MEMORY_H

#include <cstdint>
#include <utility>

namespace cleave {

class Memory {
public:
  Memory() = default;             // none, without a mapping
  explicit Memory(int64_t bytes); // zeroed; throws OUT_OF_MEMORY
  Memory(Memory &&other) noexcept { *this = std::move(other); }
  Memory &operator=(Memory &&other) noexcept {
    std::swap(mapping, other.mapping);
    std::swap(mappedBytes, other.mappedBytes);
    std::swap(start, other.start);
    std::swap(bytes, other.bytes);
    return *this;
  }
  ~Memory();

  char *data() const { return start; }
  int64_t size() const { return bytes; }
  int64_t slack() const; // usable bytes after the end

  // Fills memory with poison: a NaN as f64, f32 and bf16, and an index far out
  // of range as an integer.
  static void poison(char *at, int64_t bytes);
  // Returns the position after the last byte that differs from poison.
  static int64_t touched(const char *at, int64_t bytes);
  // Fills the gap between the arena's last byte and the next page with a
  // pattern, which guardIntact() checks.
  void guard();
  bool guardIntact() const;

private:
  void *mapping = nullptr;
  int64_t mappedBytes = 0;
  char *start = nullptr;
  int64_t bytes = 0;
};

} // namespace cleave

#endif // CLEAVE_RUNTIME_MEMORY_H
