// What all who carry out convolutions share.
#ifndef CLEAVE_RUNTIME_CONVOLUTION_H
#define CLEAVE_RUNTIME_CONVOLUTION_H

#include "cleave/program.h"
#include "command_buffers.h"

#include <string>
#include <vector>

namespace cleave {

// Why it is no convolution; empty if it is one. Sizes are positive then.
std::string checkConvolution(const program::Convolution &convolution);

// Of x, w and y.
std::vector<int64_t> inputDims(const program::Convolution &convolution);
std::vector<int64_t> filterDims(const program::Convolution &convolution);
std::vector<int64_t> outputDims(const program::Convolution &convolution);

} // namespace cleave

#endif // CLEAVE_RUNTIME_CONVOLUTION_H
