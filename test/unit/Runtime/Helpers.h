// Helpers shared by the runtime's tests: random data, comparison, and small
// hand-written programs.
#ifndef CLEAVE_UNITTEST_RUNTIME_HELPERS_H
#define CLEAVE_UNITTEST_RUNTIME_HELPERS_H

#include "cleave/program_io.h"
#include "cleave/runtime.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace cleave::test {

template <class T>
std::vector<T> randomVector(int64_t count, uint32_t seed, double scale = 1.0) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(0.0, scale);
  std::vector<T> values(count);
  for (T &value : values)
    value = static_cast<T>(normal(engine));
  return values;
}

// Returns max|a - b| / max|b|.
template <class A, class B>
double relativeError(const std::vector<A> &a, const std::vector<B> &b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, largest = 1e-30;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    double one = std::fabs(double(a[i]) - double(b[i]));
    difference = one <= difference ? difference : one; // propagates NaN
    largest = std::max(largest, std::fabs(double(b[i])));
  }
  return difference / largest;
}

// An array with the alignment that arenas have.
template <class T> struct Aligned {
  explicit Aligned(int64_t bytes)
      : data(static_cast<T *>(
                 aligned_alloc(64, static_cast<size_t>((bytes + 127) & ~63))),
             free) {}
  std::unique_ptr<T, void (*)(void *)> data;
};

struct ProgramHandle {
  explicit ProgramHandle(const program::Program &program) {
    std::string bytes = program::serialize(program);
    status =
        cleave_program_from_memory(bytes.data(), bytes.size(), nullptr, &get);
    error = status == CLEAVE_OK ? "" : cleave_last_error();
  }
  ~ProgramHandle() { cleave_program_free(get); }
  cleave_program *get = nullptr;
  cleave_status status;
  std::string error;
};

struct SessionHandle {
  explicit SessionHandle(cleave_program *program, int threads = 1,
                         double watchdog = 60, bool poison = false) {
    cleave_session_options options{};
    options.version = CLEAVE_RUNTIME_VERSION;
    options.threads_per_rank = threads;
    options.watchdog_seconds = watchdog;
    options.poison = poison;
    status = cleave_session_create(program, &options, &get);
    error = status == CLEAVE_OK ? "" : cleave_last_error();
  }
  ~SessionHandle() { cleave_session_free(get); }
  cleave_session *get = nullptr;
  cleave_status status;
  std::string error;
};

// Adds a named f32 buffer to arena 0 and returns its reference. The shape of
// the tile is derived from the sharding.
inline program::BufferRef
addBuffer(program::Program &program, const std::string &name,
          std::vector<int64_t> shape,
          std::vector<std::vector<program::SubAxis>> sharding = {},
          program::DType dtype = program::DType::F32) {
  if (program.arenas.empty())
    program.arenas = {{"state", program::Lifespan::Persistent, 0},
                      {"transient", program::Lifespan::Transient, 0}};
  program::Boundary entry;
  entry.name = name;
  entry.role = "buffer";
  entry.dtype = dtype;
  entry.globalShape = shape;
  entry.sharding = sharding;
  int64_t bytes = program::sizeOf(dtype);
  for (size_t i = 0; i < shape.size(); ++i) {
    int64_t ways = 1;
    if (!sharding.empty())
      for (const program::SubAxis &sub : sharding[i])
        ways *= sub.size;
    entry.localShape.push_back((shape[i] + ways - 1) / ways);
    bytes *= entry.localShape.back();
  }
  entry.buffer = {0, program.arenas[0].size, {}};
  program.arenas[0].size += (bytes + 63) / 64 * 64;
  program.boundary.push_back(entry);
  return entry.buffer;
}

// Rounds to the nearest bf16, ties to even. Does not use the runtime's code.
inline uint16_t toBf16(double x) {
  float narrow = static_cast<float>(x);
  uint32_t bits;
  std::memcpy(&bits, &narrow, 4);
  uint32_t low = bits & 0xffff, high = bits >> 16;
  if (std::isnan(x))
    return high | 0x40;
  return high + (low > 0x8000 || (low == 0x8000 && high % 2));
}
inline double fromBf16(uint16_t bits) {
  uint32_t wide = uint32_t(bits) << 16;
  float x;
  std::memcpy(&x, &wide, 4);
  return x;
}
inline std::vector<uint16_t> toBf16(const std::vector<double> &values) {
  std::vector<uint16_t> out;
  for (double x : values)
    out.push_back(toBf16(x));
  return out;
}
inline std::vector<double> fromBf16(const std::vector<uint16_t> &values) {
  std::vector<double> out;
  for (uint16_t x : values)
    out.push_back(fromBf16(x));
  return out;
}
// Returns the values rounded to bf16, as doubles.
inline std::vector<double> roundedToBf16(const std::vector<double> &values) {
  return fromBf16(toBf16(values));
}
constexpr double halfUlp = 1.0 / 256; // of bf16, relative

} // namespace cleave::test

#endif // CLEAVE_UNITTEST_RUNTIME_HELPERS_H
