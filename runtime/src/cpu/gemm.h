// Matrix products: oneDNN where it has a fast one, else our own blocked loop.
#ifndef CLEAVE_RUNTIME_CPU_GEMM_H
#define CLEAVE_RUNTIME_CPU_GEMM_H

#include "cleave/program.h"
#include "command_buffers.h"
#include "products.h"

#include <functional>
#include <string>

namespace cleave {

enum class GemmBackend { Auto, Blocked };

// A call that computes the product, to be used on the thread that made it (or
// on one with the same setThreads()). Throws Error when it is not supported.
std::function<void()> makeGemm(const program::Gemm &gemm,
                               const GemmBuffers &buffers, int threads,
                               GemmBackend backend = GemmBackend::Auto);

// oneDNN alone; called with the threads set that will run it. -1, and nothing,
// where it does not do this product, or only by its slow reference.
int64_t oneDnnGemmWorkspace(const program::Gemm &gemm);
std::function<void()> makeOneDnnGemm(const program::Gemm &gemm,
                                     const GemmBuffers &buffers, int threads);

// The blocked loop alone; used for f64 and for layouts that oneDNN lacks.
int64_t blockedGemmWorkspace(const program::Gemm &gemm, int threads);
std::function<void()> makeBlockedGemm(const program::Gemm &gemm,
                                      const GemmBuffers &buffers, int threads);

} // namespace cleave

#endif // CLEAVE_RUNTIME_CPU_GEMM_H
