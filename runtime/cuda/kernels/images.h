// The compiled kernels that are embedded in this library.
#ifndef CLEAVE_RUNTIME_CUDA_KERNELS_IMAGES_H
#define CLEAVE_RUNTIME_CUDA_KERNELS_IMAGES_H

#include <vector>

namespace cleave::cuda {

struct Image {
  const char *name; // of the file without its ending
  const void *data; // a fatbin
  int generation;   // of the only devices that it is for, 90: sm_90; 0: of any
};
const std::vector<Image> &images();

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_KERNELS_IMAGES_H
