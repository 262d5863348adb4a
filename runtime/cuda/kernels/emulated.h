// The runtime's device kernels compiled for CPUs, for tests where there is no
// device.
#ifndef CLEAVE_RUNTIME_CUDA_KERNELS_EMULATED_H
#define CLEAVE_RUNTIME_CUDA_KERNELS_EMULATED_H

#include <cstdint>

namespace cleave::cuda {

struct EmulatedKernel {
  const char *name;
  void (*call)(void **args); // runs one thread
  const int *argBytes;
  int numArgs;
};

// nullptr where there is none.
const EmulatedKernel *findEmulated(const char *name);

// Runs all blocks, one after the other, on the calling thread; `args` points to
// the arguments as cuLaunchKernel's kernelParams does. Throws
// std::runtime_error, naming kernel and block, at a launch that no device would
// take, a barrier that not all threads reach, and at shuffles that lanes of a
// warp do not reach together.
void runEmulated(const EmulatedKernel &kernel, int64_t gridX, int blockX,
                 int64_t sharedBytes, void **args);

// In which order threads of a block take their turns, for what the calling
// thread runs from now on. Results of a kernel without races do not depend on
// it.
enum class ThreadOrder { Ascending, Descending };
void setThreadOrder(ThreadOrder order);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_KERNELS_EMULATED_H
