// Plans of convolutions.
#ifndef CLEAVE_TEST_GPU_DNN_CONVOLUTIONS_H
#define CLEAVE_TEST_GPU_DNN_CONVOLUTIONS_H

#include "dnn_graph.h"

#include <random>

namespace cleave::gpu {

// A line for each of common models' convolutions and `random` others, in f32,
// with TF32 and in bf16; how many have no plan that keeps to what is planned,
// or have one and should not.
int checkConvolutions(const cuda::DnnTarget &target, const char *device,
                      bool all, int random, std::mt19937_64 &engine);

} // namespace cleave::gpu

#endif // CLEAVE_TEST_GPU_DNN_CONVOLUTIONS_H
