// What the checks of kernels share: random cases, arrays on a device, and error
// limits.
#ifndef CLEAVE_TEST_GPU_KERNELS_HARNESS_H
#define CLEAVE_TEST_GPU_KERNELS_HARNESS_H

#include "kernels.h"

#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace cleave::gpu {

using program::DType;

// An element of a result is a sum of terms. Its error limit is the sum of three
// parts: `terms` times the sum of the terms' magnitudes, `roots` times the root
// of the sum of the terms' squares, and `result` times the magnitude of the
// element.
struct Limit {
  double terms, roots, result;
};

// f64 and f32: the limits allow sums of up to some thousand terms in any order,
// and functions with a few roundings.
//
// bf16: products are exact in f32 and summed in f32. The error comes from
// rounding to bf16, which has 8 significant bits, so that a rounding changes a
// value by at most 2^-8 of it. There are two roundings: of the product and of
// the result of the operation after it.
//
// TF32 keeps 11 significant bits of each operand and may truncate the other
// bits.
//
// Attention on matrix units rounds weights (in the backward pass, their
// gradients) to bf16 before they are multiplied. Each of these errors is at
// most 2^-8 of a term, and they are independent, so their total grows with the
// root of the sum of the terms' squares. The factor `roots` is 3 * 2^-8, which
// is seven standard deviations. Where cuDNN sums the contributions of the query
// heads of a KV head, each of these sums is rounded, too.
inline constexpr Limit limitF64{1e-12, 0, 1e-12};
inline constexpr Limit limitF32{1e-5, 0, 1e-5};
inline constexpr Limit limitTf32{0x1p-9, 0, 1e-5};
inline constexpr Limit limitBf16{1e-5, 0, 0x1p-7};
inline constexpr Limit limitBf16Weights{1e-5, 3 * 0x1p-8, 0x1p-7};
inline constexpr Limit limitBf16Heads{1e-5, 4 * 0x1p-8, 0x1p-7};

// Returns the error limit for results of `type`. It assumes that they were
// computed in that type, or in f32 if the type is bf16.
inline const Limit &limitOf(DType type) {
  return type == DType::F64    ? limitF64
         : type == DType::BF16 ? limitBf16
                               : limitF32;
}

// The expected value of an element, and the sums from which its error limit is
// computed.
struct Expected {
  double value = 0, terms = 0, squares = 0, magnitude = 0;
  bool isWritten = false; // else the kernel must not write it
  bool isNan = false;

  void add(double x, double itsMagnitude) {
    value += x;
    terms += itsMagnitude;
    squares += x * x;
  }
};

class Case;

// An array on the host and on a device, with guard bytes around its elements.
// Elements are NaN (floats) or -1 (integers) until they are set.
class Array {
public:
  Array() = default;
  // The array begins `shift` elements after a multiple of 256 bytes.
  Array(DType type, int64_t count, int64_t shift = 0);

  void set(int64_t i, double x) { store(before.data() + begin(), i, x); }
  double at(int64_t i) const { return load(before.data() + begin(), i); }
  void randomize(Case &one);
  // host() is the array on the host before the kernel runs, device() is the
  // array that the kernel uses, and result() is the array copied back after the
  // kernel.
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
  // Returns whether the kernel wrote to the guard bytes before or after the
  // elements.
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

// One random case of a kernel family.
class Case {
public:
  Case(cuda::Device &device, CUstream stream, uint64_t seed, bool isSmall)
      : device(device), kernels(cuda::Kernels::of(device)), stream(stream),
        isSmall(isSmall), engine(seed) {}

  int64_t below(int64_t n) { return int64_t(engine() % uint64_t(n)); }
  int64_t between(int64_t low, int64_t high) {
    return low + below(high - low + 1);
  }
  bool one(int64_t of) { return below(of) == 0; } // chance 1 / of
  // Returns a random size up to `most`, often a small one or one at the edge of
  // a tile.
  int64_t length(int64_t most);
  std::vector<int64_t> shuffled(int64_t count); // 0 to count - 1

  // Appends "NAME VALUE" to the description of the case.
  void say(const std::string &name, int64_t value);
  void say(const std::string &name, const std::vector<int64_t> &values);
  void say(const std::string &text);

  void run(const cuda::Enqueue &enqueue);

  // Compares all elements with the expected values. The array must have been
  // downloaded.
  void compare(const char *what, const Array &array,
               const std::vector<Expected> &want, const Limit &limit);
  // Compares integers, or bytes that were moved, for equality.
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
  std::string text, fault; // description of the case; what is wrong
  std::string refusal;     // why a library does not support the case
  double worst = 0;        // largest error, as a share of its limit

private:
  void note(double share, const std::string &what);
  void checkGuards(const char *what, const Array &array);
};

// Return strides of [dims...] in elements. denseStrides() has no gaps and the
// last dimension fastest; randomStrides() has a random order of dimensions in
// memory, with or without gaps. `count` becomes the number of elements that the
// strides span.
std::vector<int64_t> denseStrides(const std::vector<int64_t> &dims,
                                  int64_t &count);
std::vector<int64_t> randomStrides(Case &one, const std::vector<int64_t> &dims,
                                   int64_t &count);

// Calls visit(index) for all indices of [dims...]; the last index changes
// fastest.
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

// Prints a table of what the device's memory and its matrix units achieve. With
// `onlyCeilings`, prints only the rates of a copy and of a large product, with
// which kernels are compared, also as JSON.
void measure(cuda::Device &device, bool onlyCeilings);

} // namespace cleave::gpu

#endif // CLEAVE_TEST_GPU_KERNELS_HARNESS_H
