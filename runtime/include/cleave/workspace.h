// Computes the bytes of scratch memory that library commands need, so that the
// compiler can plan it. The runtime calls the same functions when it loads a
// program.
#ifndef CLEAVE_WORKSPACE_H
#define CLEAVE_WORKSPACE_H

#include "cleave/program.h"

namespace cleave {

// Returns the workspace in bytes (a multiple of 64) for `threads` threads per
// rank. Only the sizes and strides of the command matter, not its buffers.
// Returns -1 if the command is not supported, with the reason in `error`.
int64_t gemmWorkspace(const program::Gemm &gemm, int threads,
                      std::string &error);
int64_t attentionWorkspace(const program::Attention &attention, int threads,
                           std::string &error);
int64_t groupedWorkspace(const program::GroupedGemm &grouped, int threads,
                         std::string &error);

// The same functions for a CUDA device. They can be called on a machine without
// a device.
namespace cuda {
int64_t gemmWorkspace(const program::Gemm &gemm, std::string &error);
int64_t attentionWorkspace(const program::Attention &attention,
                           std::string &error);
int64_t groupedWorkspace(const program::GroupedGemm &grouped,
                         std::string &error);
// Convolutions are commands only in programs for devices.
int64_t convolutionWorkspace(const program::Convolution &convolution,
                             std::string &error);
} // namespace cuda

} // namespace cleave

#endif // CLEAVE_WORKSPACE_H
