// Arrays of any element type and layout.
#ifndef CLEAVE_UNITTEST_CUDA_ARRAYS_H
#define CLEAVE_UNITTEST_CUDA_ARRAYS_H

#include "Helpers.h"

namespace cleave::test {

using program::DType;

// An array of a type's elements, stored as bytes. Elements that must not be
// read are NaN.
struct Array {
  DType type = DType::F32;
  std::vector<char> bytes;

  Array() = default;
  Array(DType type, int64_t count)
      : type(type), bytes(size_t(count * sizeOf(type)), char(0xff)) {}
  void *data() { return bytes.data(); }

  void set(int64_t i, double x) {
    if (type == DType::F64)
      reinterpret_cast<double *>(data())[i] = x;
    else if (type == DType::F32)
      reinterpret_cast<float *>(data())[i] = static_cast<float>(x);
    else
      reinterpret_cast<uint16_t *>(data())[i] = toBf16(x);
  }
  std::vector<double> values() {
    std::vector<double> out;
    int64_t count = int64_t(bytes.size()) / sizeOf(type);
    for (int64_t i = 0; i < count; ++i)
      out.push_back(type == DType::F64 ? reinterpret_cast<double *>(data())[i]
                    : type == DType::F32
                        ? double(reinterpret_cast<float *>(data())[i])
                        : fromBf16(reinterpret_cast<uint16_t *>(data())[i]));
    return out;
  }
  void fill(uint32_t seed) {
    std::mt19937 engine(seed);
    std::normal_distribution<double> normal;
    int64_t count = int64_t(bytes.size()) / sizeOf(type);
    for (int64_t i = 0; i < count; ++i)
      set(i, normal(engine));
  }
};

// Returns the largest difference between a and b, relative to the largest
// element of b or to `least`, whichever is larger. `least` is for results whose
// terms cancel, because their rounding errors are as large as those of the
// terms. Elements that neither side writes are NaN in both and count as equal.
inline double difference(Array &a, Array &b, double least = 0) {
  std::vector<double> x = a.values(), y = b.values();
  for (size_t i = 0; i < x.size(); ++i)
    if (std::isnan(x[i]) && std::isnan(y[i]))
      x[i] = y[i] = 0;
  x.push_back(least), y.push_back(least);
  return relativeError(x, y);
}

inline double toleranceOf(DType type, bool isWide = false) {
  return type == DType::F64               ? 1e-12
         : type == DType::BF16 && !isWide ? 2 * halfUlp
                                          : 1e-5;
}

// Returns the strides of [dims...] without gaps, the last dimension fastest.
inline std::vector<int64_t> denseStrides(const std::vector<int64_t> &dims,
                                         int64_t &count) {
  std::vector<int64_t> strides(dims.size());
  count = 1;
  for (size_t i = dims.size(); i-- > 0; count *= dims[i])
    strides[i] = count;
  return strides;
}

// Returns strides of [dims...] with gaps and with the dimensions in a random
// order in memory.
inline std::vector<int64_t> randomStrides(std::mt19937 &engine,
                                          const std::vector<int64_t> &dims,
                                          int64_t &count) {
  std::vector<size_t> order(dims.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::shuffle(order.begin(), order.end(), engine);
  std::vector<int64_t> strides(dims.size());
  count = 1 + engine() % 2;
  for (size_t i : order) {
    strides[i] = count;
    count = count * std::max<int64_t>(dims[i], 1) + engine() % 2;
  }
  return strides;
}

} // namespace cleave::test

#endif // CLEAVE_UNITTEST_CUDA_ARRAYS_H
