// The runtime's own kernels, compiled for CPUs.
#ifndef CLEAVE_TEST_GPU_RECORDER_EMULATED_H
#define CLEAVE_TEST_GPU_RECORDER_EMULATED_H

#include <array>
#include <functional>
#include <string>

namespace recorder {

struct Dims {
  std::array<unsigned, 3> grid, block;
  unsigned shared = 0;
};

struct EmulatedKernel {
  std::function<void(const Dims &, void **arguments)> run;
  explicit operator bool() const { return bool(run); }
};

// Returns an empty EmulatedKernel if no kernel of this name can be emulated.
EmulatedKernel findEmulatedKernel(const std::string &name);

} // namespace recorder

#endif // CLEAVE_TEST_GPU_RECORDER_EMULATED_H
