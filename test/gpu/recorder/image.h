// Reads the properties of kernels from a module's image.
#ifndef CLEAVE_TEST_GPU_RECORDER_IMAGE_H
#define CLEAVE_TEST_GPU_RECORDER_IMAGE_H

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace recorder {

struct KernelImage {
  std::vector<int> parameters; // sizes in bytes
  int64_t shared = 0;          // bytes that it declares; 0 of PTX
  int64_t threads = 0;         // most of a block, 0: as many as a device has
};

// Returns the kernels of a cubin, of the first cubin in a fat binary, or of
// PTX, by name. Returns an empty map for other kinds of images.
std::map<std::string, KernelImage> kernelsOf(const void *image);

} // namespace recorder

#endif // CLEAVE_TEST_GPU_RECORDER_IMAGE_H
