// Random cases of kernel checks, and their arrays.

#include "harness.h"

#include <algorithm>
#include <cstring>
#include <numeric>

using namespace cleave;
using namespace cleave::gpu;

namespace {
double widen(uint16_t bits) {
  uint32_t wide = uint32_t(bits) << 16;
  float out;
  std::memcpy(&out, &wide, sizeof(out));
  return out;
}

uint16_t narrow(double x) {
  auto single = static_cast<float>(x);
  uint32_t bits;
  std::memcpy(&bits, &single, sizeof(bits));
  if (std::isnan(single))
    return uint16_t(bits >> 16 | 64);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16); // to even
}

template <class T> double read(const char *data, int64_t i) {
  T x;
  std::memcpy(&x, data + i * int64_t(sizeof(T)), sizeof(T));
  return double(x);
}
template <class T> void write(char *data, int64_t i, T x) {
  std::memcpy(data + i * int64_t(sizeof(T)), &x, sizeof(T));
}

constexpr char guardByte = 0x35;
} // namespace

Array::Array(DType type, int64_t count, int64_t shift)
    : type(type), count(count), shift(shift) {
  before.assign(size_t(begin() + bytes() + guard), guardByte);
  std::fill_n(before.begin() + begin(), bytes(), char(0xff));
}

double Array::load(const char *data, int64_t i) const {
  switch (type) {
  case DType::F64:
    return read<double>(data, i);
  case DType::F32:
    return read<float>(data, i);
  case DType::BF16: {
    uint16_t bits;
    std::memcpy(&bits, data + 2 * i, sizeof(bits));
    return widen(bits);
  }
  case DType::I64:
    return read<int64_t>(data, i);
  case DType::I32:
    return read<int32_t>(data, i);
  case DType::I8:
    return read<int8_t>(data, i);
  case DType::U8:
    return read<uint8_t>(data, i);
  }
  return NAN;
}

void Array::store(char *data, int64_t i, double x) const {
  switch (type) {
  case DType::F64:
    return write(data, i, x);
  case DType::F32:
    return write(data, i, float(x));
  case DType::BF16:
    return write(data, i, narrow(x));
  case DType::I64:
    return write(data, i, int64_t(x));
  case DType::I32:
    return write(data, i, int32_t(x));
  case DType::I8:
    return write(data, i, int8_t(x));
  case DType::U8:
    return write(data, i, uint8_t(x));
  }
}

void Array::randomize(Case &one) {
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < count; ++i)
    set(i, normal(one.engine));
}

char *Array::upload(CUstream stream) {
  auto all = static_cast<int64_t>(before.size());
  memory = cuda::DeviceMemory(all, "an array of a check");
  cuda::check(cuda::driver().cuMemcpyHtoDAsync(cuda::address(memory.data()),
                                               before.data(), size_t(all),
                                               stream),
              "copying to the device");
  return device();
}

void Array::download(CUstream stream) {
  after.resize(before.size());
  cuda::check(cuda::driver().cuMemcpyDtoHAsync(after.data(),
                                               cuda::address(memory.data()),
                                               after.size(), stream),
              "copying from the device");
  cuda::check(cuda::driver().cuStreamSynchronize(stream),
              "copying from the device");
}

bool Array::isUnchanged(int64_t i) const {
  int64_t size = program::sizeOf(type), at = begin() + i * size;
  return std::memcmp(before.data() + at, after.data() + at, size_t(size)) == 0;
}

bool Array::hasOverrun() const {
  auto isGuard = [](char byte) { return byte == guardByte; };
  return !std::all_of(after.begin(), after.begin() + begin(), isGuard) ||
         !std::all_of(after.end() - guard, after.end(), isGuard);
}

int64_t Case::length(int64_t most) {
  if (one(3))
    return between(1, std::min<int64_t>(most, 9));
  if (one(3)) { // about the edge of a tile
    int64_t edge = 32 * between(1, std::max<int64_t>(most / 32, 1));
    return std::clamp<int64_t>(edge + between(-1, 1), 1, most);
  }
  return between(1, most);
}

std::vector<int64_t> Case::shuffled(int64_t count) {
  std::vector<int64_t> out(count);
  std::iota(out.begin(), out.end(), 0);
  std::shuffle(out.begin(), out.end(), engine);
  return out;
}

void Case::say(const std::string &what) {
  text += (text.empty() ? "" : ", ") + what;
}
void Case::say(const std::string &name, int64_t value) {
  say(name + " " + std::to_string(value));
}
void Case::say(const std::string &name, const std::vector<int64_t> &values) {
  std::string all;
  for (int64_t value : values)
    all += (all.empty() ? "" : " ") + std::to_string(value);
  say(name + " [" + all + "]");
}

void Case::run(const cuda::Enqueue &enqueue) {
  enqueue(stream);
  cuda::check(cuda::driver().cuStreamSynchronize(stream), "running a kernel");
}

void Case::note(double share, const std::string &what) {
  if (share > 1 && fault.empty())
    fault = what;
  worst = std::max(worst, share);
}

void Case::checkGuards(const char *what, const Array &array) {
  if (array.hasOverrun())
    note(INFINITY, std::string(what) + ": bytes around it were written");
}

void Case::compare(const char *what, const Array &array,
                   const std::vector<Expected> &want, const Limit &limit) {
  checkGuards(what, array);
  // Magnitudes below this count as 0, except in f64.
  double least = array.type == DType::F64 ? 1e-290 : 1e-30;
  for (int64_t i = 0; i < array.size(); ++i) {
    const Expected &x = want[i];
    if (!x.isWritten) {
      if (!array.isUnchanged(i))
        note(INFINITY, std::string(what) + " " + std::to_string(i) +
                           ", which is not part of it, was written");
      continue;
    }
    double got = array.got(i);
    // Infinities, too.
    if (x.isNan ? std::isnan(got) : got == x.value)
      continue;
    double error = std::abs(got - x.value);
    double most = limit.terms * x.terms + limit.roots * std::sqrt(x.squares) +
                  limit.result * std::max(x.magnitude, std::abs(x.value)) +
                  least;
    double share = std::isfinite(error) ? error / most : INFINITY;
    if (share > worst) {
      char line[160];
      std::snprintf(line, sizeof(line),
                    "%s %lld: %.9g, expected %.9g within %.2g", what,
                    static_cast<long long>(i), got, x.value, most);
      note(share, line);
    }
  }
}

std::vector<int64_t> gpu::denseStrides(const std::vector<int64_t> &dims,
                                       int64_t &count) {
  std::vector<int64_t> strides(dims.size());
  count = 1;
  for (size_t i = dims.size(); i-- > 0; count *= dims[i])
    strides[i] = count;
  return strides;
}

std::vector<int64_t> gpu::randomStrides(Case &one,
                                        const std::vector<int64_t> &dims,
                                        int64_t &count) {
  std::vector<int64_t> strides(dims.size());
  count = one.between(1, 2);
  for (int64_t i : one.shuffled(std::ssize(dims))) {
    strides[i] = count;
    count = count * std::max<int64_t>(dims[i], 1) + one.below(2);
  }
  return strides;
}
