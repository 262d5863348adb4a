// Plans of convolutions.
#ifndef CLEAVE_TEST_GPU_DNN_CONVOLUTIONS_H
#define CLEAVE_TEST_GPU_DNN_CONVOLUTIONS_H

#include "dnn_graph.h"

#include <random>

namespace cleave::gpu {

// Prints a line for each convolution of common models and for `random` random
// ones, in f32, with TF32 and in bf16. Returns how many of them fail: there is
// no plan within the planned workspace, or there is a plan for a convolution
// that cuDNN should refuse.
int checkConvolutions(const cuda::DnnTarget &target, const char *device,
                      bool all, int random, std::mt19937_64 &engine);

} // namespace cleave::gpu

#endif // CLEAVE_TEST_GPU_DNN_CONVOLUTIONS_H
