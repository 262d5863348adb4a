// The generated kernels of a program, on a device.
#ifndef CLEAVE_RUNTIME_CUDA_PROGRAM_MODULE_H
#define CLEAVE_RUNTIME_CUDA_PROGRAM_MODULE_H

#include "device.h"
#include "loaded_program.h"

#include <memory>
#include <vector>

namespace cleave::cuda {

struct ProgramModule {
  Module module;
  std::vector<CUfunction> functions; // by kernel
};

// From the program's folder or what came in place of it: kernels.sm_NN.cubin,
// code of one processor and later ones of its generation, or kernels.sm_NN.ptx,
// which the driver compiles for any later one. Throws UNSUPPORTED where none is
// for the device, and BAD_PROGRAM where a kernel is missing.
std::shared_ptr<ProgramModule> loadModule(const cleave_program &program,
                                          Device &device);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_PROGRAM_MODULE_H
