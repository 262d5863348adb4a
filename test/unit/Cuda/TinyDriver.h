// A driver of one device whose kernels run on the CPU, at once.
#ifndef CLEAVE_UNITTEST_CUDA_TINYDRIVER_H
#define CLEAVE_UNITTEST_CUDA_TINYDRIVER_H

#include "kernels.h"
#include "kernels/emulated.h"

#include <functional>
#include <string>
#include <vector>

namespace cleave::test {

cuda::Kernels &kernels();

// Names of the kernels that were launched since the last call.
std::vector<std::string> takeLaunches();

// Runs twice, with threads in ascending and in descending order; `outcome`
// returns what was written, which must have equal bits.
void runInBothOrders(const std::function<void()> &run,
                     const std::function<std::string()> &outcome);

// The bytes of an array.
template <class T> std::string bytesOf(const std::vector<T> &values) {
  return {reinterpret_cast<const char *>(values.data()),
          values.size() * sizeof(T)};
}

} // namespace cleave::test

#endif // CLEAVE_UNITTEST_CUDA_TINYDRIVER_H
