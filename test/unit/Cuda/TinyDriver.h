// A driver with one simulated device, whose kernels run on the CPU during the
// launch.
#ifndef CLEAVE_UNITTEST_CUDA_TINYDRIVER_H
#define CLEAVE_UNITTEST_CUDA_TINYDRIVER_H

#include "kernels.h"
#include "kernels/emulated.h"

#include <functional>
#include <string>
#include <vector>

namespace cleave::test {

cuda::Kernels &kernels();

// Returns the names of the kernels that were launched since the last call.
std::vector<std::string> takeLaunches();

// Calls `run` twice, with the threads of kernels in ascending and in descending
// order. `outcome` returns the results, which must be equal bit by bit.
void runInBothOrders(const std::function<void()> &run,
                     const std::function<std::string()> &outcome);

// Returns the bytes of an array as a string.
template <class T> std::string bytesOf(const std::vector<T> &values) {
  return {reinterpret_cast<const char *>(values.data()),
          values.size() * sizeof(T)};
}

} // namespace cleave::test

#endif // CLEAVE_UNITTEST_CUDA_TINYDRIVER_H
