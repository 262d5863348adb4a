// Kernels that the compiler has generated, and the commands that launch them.
#ifndef CLEAVE_PROGRAM_KERNELS_H
#define CLEAVE_PROGRAM_KERNELS_H

#include "cleave/program/values.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cleave::program {

// An argument of a kernel: the address of a buffer. The kernel accesses only
// the first `bytes` bytes from this address on.
struct KernelArg {
  int64_t bytes = 0;
  bool written = false; // false: the kernel only reads it
};

// A compiled kernel, found in kernels.so by its symbol.
struct Kernel {
  std::string symbol;
  int32_t numArgs = 0;
  // The operands of the kernel, then its results. A result may overlap an
  // operand. Empty if it is unknown what the kernel accesses.
  std::vector<KernelArg> args = {};
  // For Device::Cuda: the number of blocks of a launch and of threads of a
  // block; shared memory is static. The kernel has one more argument, not
  // listed in `args`: the address of the rank's mesh coordinates (cleave_ctx).
  int64_t grid = 0, block = 0;
};

// Calls the kernel on pieces of the rows [0, extent), possibly from several
// threads. Every piece but the last one has at least `grain` rows.
struct Launch {
  uint32_t kernel = 0;
  std::vector<BufferRef> args;
  int64_t extent = 0;
  int64_t grain = 1;
};

} // namespace cleave::program

#endif // CLEAVE_PROGRAM_KERNELS_H
