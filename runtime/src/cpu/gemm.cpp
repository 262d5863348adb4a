// Selects the implementation of a matrix product: oneDNN if it has an optimized
// one, else the blocked loop of gemm_blocked.cpp.

#include "cpu/gemm.h"

#include "cleave/workspace.h"
#include "cpu/parallel.h"
#include "error.h"

using namespace cleave;
using program::DType;
using program::Gemm;
using program::MatrixRef;

namespace {
// Sets the number of threads, which libraries read while they prepare a
// primitive, and restores it at the end of the scope.
struct ThreadsGuard {
  explicit ThreadsGuard(int threads) : before(getThreads()) {
    if (threads != before)
      setThreads(threads);
  }
  ~ThreadsGuard() { setThreads(before); }
  int before;
};

const char *const notHere =
    "gemm with a derivative or sums of an operand, which only programs for "
    "CUDA devices have; compile the model for this target";
bool isForDevices(const Gemm &gemm) {
  return gemm.derivativeAt.present() || gemm.sums.present();
}
} // namespace

int64_t cleave::gemmWorkspace(const Gemm &gemm, int threads,
                              std::string &error) {
  error = checkGemm(gemm);
  if (error.empty() && isForDevices(gemm))
    error = notHere;
  if (!error.empty())
    return -1;
  ThreadsGuard guard(threads);
  int64_t bytes = oneDnnGemmWorkspace(gemm);
  return bytes >= 0 ? bytes : blockedGemmWorkspace(gemm, threads);
}

std::function<void()> cleave::makeGemm(const Gemm &gemm,
                                       const GemmBuffers &buffers, int threads,
                                       GemmBackend backend) {
  std::string error = checkGemm(gemm);
  if (error.empty() && isForDevices(gemm))
    error = notHere;
  if (!error.empty())
    fail(CLEAVE_UNSUPPORTED, error);
  ThreadsGuard guard(threads);
  if (backend == GemmBackend::Auto)
    if (std::function<void()> run = makeOneDnnGemm(gemm, buffers, threads))
      return run;
  return makeBlockedGemm(gemm, buffers, threads);
}
