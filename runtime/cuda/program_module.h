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

// Loads the generated kernels of a program, from files of its folder, or from
// images in memory if the program was received from the host. The image
// kernels.sm_NN.cubin has machine code for sm_NN and later devices of the same
// generation. The image kernels.sm_NN.ptx is compiled by the driver for any
// later device. Throws UNSUPPORTED if no image fits the device, BAD_PROGRAM if
// a kernel is missing.
std::shared_ptr<ProgramModule> loadModule(const cleave_program &program,
                                          Device &device);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_PROGRAM_MODULE_H
