// Matrix products on the CPU: by oneDNN if it has an optimized implementation,
// else by the blocked loop of gemm_blocked.cpp.
#ifndef CLEAVE_RUNTIME_CPU_GEMM_H
#define CLEAVE_RUNTIME_CPU_GEMM_H

#include "cleave/program.h"
#include "command_buffers.h"
#include "products.h"

#include <functional>
#include <string>

namespace cleave {

enum class GemmBackend { Auto, Blocked };

// Returns a call that computes the product. The call must run on the thread
// that created it, or on a thread with the same number of threads set by
// setThreads(). Throws Error if the product is not supported.
std::function<void()> makeGemm(const program::Gemm &gemm,
                               const GemmBuffers &buffers, int threads,
                               GemmBackend backend = GemmBackend::Auto);

// Products by oneDNN. Before a call of these functions, setThreads() must set
// the number of threads with which the product will run. If oneDNN does not
// support the product, or only by its slow reference implementation,
// oneDnnGemmWorkspace() returns -1 and makeOneDnnGemm() returns an empty
// function.
int64_t oneDnnGemmWorkspace(const program::Gemm &gemm);
std::function<void()> makeOneDnnGemm(const program::Gemm &gemm,
                                     const GemmBuffers &buffers, int threads);

// Products by the blocked loop, which is used for f64 and for layouts that
// oneDNN lacks.
int64_t blockedGemmWorkspace(const program::Gemm &gemm, int threads);
std::function<void()> makeBlockedGemm(const program::Gemm &gemm,
                                      const GemmBuffers &buffers, int threads);

} // namespace cleave

#endif // CLEAVE_RUNTIME_CPU_GEMM_H
