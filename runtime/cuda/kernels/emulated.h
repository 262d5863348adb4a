// The runtime's device kernels compiled for CPUs, for tests without a device.
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

// Returns the kernel of this name, or nullptr if there is none.
const EmulatedKernel *findEmulated(const char *name);

// Runs all blocks, one after the other, on the calling thread. `args` points to
// the arguments like kernelParams of cuLaunchKernel. Throws std::runtime_error
// that names kernel and block if the launch exceeds the limits of a device, if
// not all threads reach a barrier, or if lanes of a warp do not reach a shuffle
// together.
void runEmulated(const EmulatedKernel &kernel, int64_t gridX, int blockX,
                 int64_t sharedBytes, void **args);

// The order in which the threads of a block take turns, for launches of the
// calling thread from now on. Results of a kernel without races do not depend
// on it.
enum class ThreadOrder { Ascending, Descending };
void setThreadOrder(ThreadOrder order);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_KERNELS_EMULATED_H
