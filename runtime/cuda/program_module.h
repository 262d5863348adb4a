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

// Loads the kernels from the program's folder, or from the images that replace
// it: kernels.sm_NN.cubin, machine code for one device and later ones of its
// generation, or kernels.sm_NN.ptx, which the driver compiles for any later
// device. Throws UNSUPPORTED if no image fits the device, BAD_PROGRAM if a
// kernel is missing.
std::shared_ptr<ProgramModule> loadModule(const cleave_program &program,
                                          Device &device);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_PROGRAM_MODULE_H
