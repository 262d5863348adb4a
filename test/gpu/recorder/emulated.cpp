// The runtime's own kernels, compiled for CPUs.

#include "emulated.h"

#include "kernels/emulated.h"

using namespace recorder;
using namespace cleave;

EmulatedKernel recorder::findEmulatedKernel(const std::string &name) {
  const cuda::EmulatedKernel *kernel = cuda::findEmulated(name.c_str());
  if (!kernel)
    return {};
  EmulatedKernel found;
  found.run = [kernel](const Dims &dims, void **arguments) {
    cuda::runEmulated(*kernel, dims.grid[0], static_cast<int>(dims.block[0]),
                      dims.shared, arguments);
  };
  return found;
}
