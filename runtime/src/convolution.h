// Checks convolution commands, and computes the shapes of their operands.
#ifndef CLEAVE_RUNTIME_CONVOLUTION_H
#define CLEAVE_RUNTIME_CONVOLUTION_H

#include "cleave/program.h"
#include "command_buffers.h"

#include <string>
#include <vector>

namespace cleave {

// Returns the reason why the convolution is invalid; empty if it is valid. In a
// valid convolution all sizes are positive.
std::string checkConvolution(const program::Convolution &convolution);

// Return the shapes of x, w and y.
std::vector<int64_t> inputDims(const program::Convolution &convolution);
std::vector<int64_t> filterDims(const program::Convolution &convolution);
std::vector<int64_t> outputDims(const program::Convolution &convolution);

} // namespace cleave

#endif // CLEAVE_RUNTIME_CONVOLUTION_H
