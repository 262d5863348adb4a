// Kernels that the compiler has generated, and their launches.
#ifndef CLEAVE_PROGRAM_KERNELS_H
#define CLEAVE_PROGRAM_KERNELS_H

#include "cleave/program/values.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cleave::program {

// What a kernel does with an argument: it reads or writes no byte but the
// `bytes` from its address on.
struct KernelArg {
  int64_t bytes = 0;
  bool written = false; // else only read
};

// A compiled kernel, found in kernels.so by its symbol.
struct Kernel {
  std::string symbol;
  int32_t numArgs = 0;
  // Operands, then results, which may be in an operand. Empty: not known.
  std::vector<KernelArg> args = {};
  // Device::Cuda: blocks of a launch and threads of a block; what they share is
  // static. A last argument, which is none of `args`, is the address of the
  // rank's indices on the mesh axes (cleave_ctx).
  int64_t grid = 0, block = 0;
};

// Calls the kernel on pieces of the rows [0, extent), none smaller than
// `grain` rows (but the last), possibly from several threads.
struct Launch {
  uint32_t kernel = 0;
  std::vector<BufferRef> args;
  int64_t extent = 0;
  int64_t grain = 1;
};

} // namespace cleave::program

#endif // CLEAVE_PROGRAM_KERNELS_H
