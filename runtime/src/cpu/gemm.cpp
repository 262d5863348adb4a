// Choosing how a matrix product is done: by oneDNN where it has an optimized
// implementation, by the blocked loop elsewhere.

#include "cpu/gemm.h"

#include "cleave/workspace.h"
#include "cpu/parallel.h"
#include "error.h"

using namespace cleave;
using program::DType;
using program::Gemm;
using program::MatrixRef;

namespace {
// Libraries ask for the thread count while they prepare.
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

std::string cleave::checkGemm(const Gemm &gemm) {
  if (gemm.dtype != DType::F32 && gemm.dtype != DType::F64 &&
      gemm.dtype != DType::BF16)
    return std::string("gemm in ") + nameOf(gemm.dtype) +
           " is not supported; use f32, f64 or bf16";
  if (gemm.wideResult && gemm.dtype != DType::BF16)
    return std::string("gemm in ") + nameOf(gemm.dtype) +
           " whose result is to be f32: only that of bf16 is wider";
  if (gemm.wideResult && gemm.preActivation.present())
    return "gemm in bf16 with two results of f32 is not supported";
  constexpr int64_t limit = int64_t(1) << 31;
  __int128 work = 1;
  for (int64_t size : {gemm.m, gemm.n, gemm.k})
    if (size < 0 || size > limit)
      return "gemm of size " + std::to_string(size);
  for (const MatrixRef *matrix : {&gemm.a, &gemm.b, &gemm.c})
    if (matrix->batchStrides.size() != gemm.batch.size())
      return "gemm with " + std::to_string(gemm.batch.size()) +
             " batch dimensions has an operand with " +
             std::to_string(matrix->batchStrides.size());
  for (size_t i = 0; i < gemm.batch.size(); ++i) {
    work *= gemm.batch[i];
    if (gemm.batch[i] < 0 || work > limit)
      return "gemm with a batch of " + std::to_string(gemm.batch[i]);
    if (gemm.batch[i] > 1 && gemm.c.batchStrides[i] == 0)
      return "gemm that writes one output for a whole batch";
  }
  if (gemm.preActivation.present() && gemm.c.colStride != 1 && gemm.n > 1)
    return "gemm with a second output needs contiguous rows";
  bool isPlain = !gemm.bias.present() && !gemm.preActivation.present();
  if (gemm.derivativeAt.present() &&
      (gemm.activation != program::Activation::GeluTanh || gemm.accumulate ||
       gemm.wideResult || gemm.sums.present() || !isPlain))
    return "gemm with a derivative of other than gelu_tanh, or with a bias, an "
           "accumulator, a second output or a wider one";
  if (gemm.sums.present() && (gemm.activation != program::Activation::None ||
                              !isPlain || !gemm.batch.empty()))
    return "gemm with sums of an operand and with a bias, an activation or a "
           "batch";
  return "";
}

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
