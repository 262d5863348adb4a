// What the checks of kernels share: random cases, arrays on a device, limits.
#ifndef CLEAVE_TEST_GPU_KERNELS_HARNESS_H
#define CLEAVE_TEST_GPU_KERNELS_HARNESS_H

#include "kernels.h"

#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace cleave::gpu {

using program::DType;

// By how much an element may be off: a share of the sum of its terms'
// magnitudes, one of the root of the sum of their squares, and one of its own
// magnitude.
struct Limit {
  double terms, roots, result;
};

// f64 and f32: sums of up to some thousand terms, in any order, and functions
// with a few roundings. bf16: products are exact in f32 and summed there; what
// counts is that results are rounded to 8 bits, half a unit being 2^-8 at most,
// once by the product and once by what comes after it. TF32 keeps 11 bits of
// each operand, and may cut off the others. Attention on matrix units rounds
// weights (or what is their gradient) to bf16 before they multiply: errors of
// terms, each 2^-8 of it at most, that are independent, so the root of their
// squares counts, with three such units (seven standard deviations); where
// cuDNN adds up what the query heads of a kv head give, each of these sums is
// rounded, too.
inline constexpr Limit limitF64{1e-12, 0, 1e-12};
inline constexpr Limit limitF32{1e-5, 0, 1e-5};
inline constexpr Limit limitTf32{0x1p-9, 0, 1e-5};
inline constexpr Limit limitBf16{1e-5, 0, 0x1p-7};
inline constexpr Limit limitBf16Weights{1e-5, 3 * 0x1p-8, 0x1p-7};
inline constexpr Limit limitBf16Heads{1e-5, 4 * 0x1p-8, 0x1p-7};

// Of results of `type` that were computed as such, or in f32 from bf16.
inline const Limit &limitOf(DType type) {
  return type == DType::F64    ? limitF64
         : type == DType::BF16 ? limitBf16
                               : limitF32;
}

// What an element is to be, and what its limit is made of.
struct Expected {
  double value = 0, terms = 0, squares = 0, magnitude = 0;
  bool isWritten = false; // else its bits stay
  bool isNan = false;

  void add(double x, double itsMagnitude) {
    value += x;
    terms += itsMagnitude;
    squares += x * x;
  }
};

class Case;

// Elements on the host and on a device, where bytes around them are guarded.
// They are NaN, or -1, until they are set.
class Array {
public:
  Array() = default;
  // Begins `shift` elements after a multiple of 256.
  Array(DType type, int64_t count, int64_t shift = 0);

  void set(int64_t i, double x) { store(before.data() + begin(), i, x); }
  double at(int64_t i) const { return load(before.data() + begin(), i); }
  void randomize(Case &one);
  // As it is on the host before the kernel, as the kernel has it, and what has
  // come back.
  template <class T> T *host() {
    return reinterpret_cast<T *>(before.data() + begin());
  }
  char *upload(CUstream stream);
  char *device() const { return memory.data() + begin(); }
  void download(CUstream stream);
  double got(int64_t i) const { return load(after.data() + begin(), i); }
  template <class T> const T *result() const {
    return reinterpret_cast<const T *>(after.data() + begin());
  }
  bool isUnchanged(int64_t i) const;
  // Whether bytes before the elements or after them were written.
  bool hasOverrun() const;

  int64_t size() const { return count; }
  int64_t bytes() const { return count * program::sizeOf(type); }
  DType type = DType::F32;

private:
  static constexpr int64_t guard = 256;
  int64_t begin() const { return guard + shift * program::sizeOf(type); }
  double load(const char *data, int64_t i) const;
  void store(char *data, int64_t i, double x) const;

  int64_t count = 0, shift = 0;
  std::vector<char> before, after;
  cuda::DeviceMemory memory;
};

// One random case of a family.
class Case {
public:
  Case(cuda::Device &device, CUstream stream, uint64_t seed, bool isSmall)
      : device(device), kernels(cuda::Kernels::of(device)), stream(stream),
        isSmall(isSmall), engine(seed) {}

  int64_t below(int64_t n) { return int64_t(engine() % uint64_t(n)); }
  int64_t between(int64_t low, int64_t high) {
    return low + below(high - low + 1);
  }
  bool one(int64_t of) { return below(of) == 0; } // in `of`
  // A size: often a small one or one at the edge of a tile.
  int64_t length(int64_t most);
  std::vector<int64_t> shuffled(int64_t count); // 0 to count - 1

  // Appends "NAME VALUE" to what the case is called.
  void say(const std::string &name, int64_t value);
  void say(const std::string &name, const std::vector<int64_t> &values);
  void say(const std::string &text);

  void run(const cuda::Enqueue &enqueue);

  // Compares all elements; the array has been downloaded.
  void compare(const char *what, const Array &array,
               const std::vector<Expected> &want, const Limit &limit);
  // The same of integers and bytes that were moved.
  template <class T>
  void compareExactly(const char *what, const Array &array,
                      const std::vector<T> &want) {
    checkGuards(what, array);
    for (size_t i = 0; i < want.size(); ++i)
      if (array.result<T>()[i] != want[i]) {
        note(INFINITY, std::string(what) + " " + std::to_string(i) + ": " +
                           std::to_string(array.result<T>()[i]) +
                           ", expected " + std::to_string(want[i]));
        return;
      }
    note(0, "");
  }

  cuda::Device &device;
  cuda::Kernels &kernels;
  const CUstream stream;
  const bool isSmall;
  std::mt19937_64 engine;
  std::string text, fault; // what the case is, and what is wrong
  std::string refusal;     // why a library leaves it to our kernels
  double worst = 0;        // error, as a share of its limit

private:
  void note(double share, const std::string &what);
  void checkGuards(const char *what, const Array &array);
};

// Strides of [dims...] in elements: the last one fastest, or in a random order
// of memory; with gaps or without. `count`: elements that they span.
std::vector<int64_t> denseStrides(const std::vector<int64_t> &dims,
                                  int64_t &count);
std::vector<int64_t> randomStrides(Case &one, const std::vector<int64_t> &dims,
                                   int64_t &count);

// Calls visit(index) for all indices of [dims...], the last one fastest.
template <class Visit>
void forAll(const std::vector<int64_t> &dims, Visit visit) {
  std::vector<int64_t> index(dims.size());
  for (int64_t size : dims)
    if (size == 0)
      return;
  for (;;) {
    visit(index);
    size_t i = dims.size();
    while (i > 0 && ++index[i - 1] == dims[i - 1])
      index[--i] = 0;
    if (i == 0)
      return;
  }
}

inline int64_t dot(const std::vector<int64_t> &a,
                   const std::vector<int64_t> &b) {
  int64_t sum = 0;
  for (size_t i = 0; i < b.size(); ++i)
    sum += a[i] * b[i];
  return sum;
}

struct Family {
  std::string name;
  void (*check)(Case &);
  int64_t cases = 32, small = 4; // with --small
};
void addGemmFamilies(std::vector<Family> &to);
void addAttentionFamilies(cuda::Device &device, std::vector<Family> &to);
void addConvolutionFamilies(cuda::Device &device, std::vector<Family> &to);
void addGroupedFamilies(std::vector<Family> &to);
void addRowFamilies(std::vector<Family> &to);
void addMoveFamilies(std::vector<Family> &to);

// Prints a table of what the device's memory and its matrix units give; with
// `onlyCeilings` what others are compared with, as JSON, too.
void measure(cuda::Device &device, bool onlyCeilings);

} // namespace cleave::gpu

#endif // CLEAVE_TEST_GPU_KERNELS_HARNESS_H
