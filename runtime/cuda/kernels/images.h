// The compiled kernels of the runtime, which are embedded in this library.
#ifndef CLEAVE_RUNTIME_CUDA_KERNELS_IMAGES_H
#define CLEAVE_RUNTIME_CUDA_KERNELS_IMAGES_H

#include <vector>

namespace cleave::cuda {

struct Image {
  const char *name; // file name without extension
  const void *data; // a fatbin
  int generation;   // 90: runs only on sm_90; 0: on any device
};
const std::vector<Image> &images();

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_KERNELS_IMAGES_H
