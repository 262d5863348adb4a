// What a module's image says of its kernels.
#ifndef CLEAVE_TEST_GPU_RECORDER_IMAGE_H
#define CLEAVE_TEST_GPU_RECORDER_IMAGE_H

#include <map>
#include <string>
#include <vector>

namespace recorder {

// Sizes of the parameters in bytes, by kernel: of a cubin, of the first cubin
// in a fat binary, or of PTX. Nothing of an image of another kind.
std::map<std::string, std::vector<int>> parametersOf(const void *image);

} // namespace recorder

#endif // CLEAVE_TEST_GPU_RECORDER_IMAGE_H
