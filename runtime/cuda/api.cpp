// Looks up functions of the driver and of NVIDIA's libraries.

#include "api.h"

#include "library.h"

#include <cstdlib>

using namespace cleave;
using namespace cleave::cuda;

namespace {
DriverApi loadDriver() {
  Library library("libcuda.so.1",
                  "NVIDIA's driver; run on a machine with a GPU, or compile "
                  "with target.kind = \"cpu\"");
  DriverApi api;
  CLEAVE_DRIVER_FUNCTIONS(CLEAVE_LOOK_UP)
  api.note = reinterpret_cast<cleave_recorder_note>(
      library.find("cleaveRecorderNote"));
  api.kernels = reinterpret_cast<cleave_recorder_kernels>(
      library.find("cleaveRecorderKernels"));
  // The driver reads these variables when it is initialised. There must be more
  // hardware queues than streams: streams that share a queue run in its order,
  // so a send could be queued after a receive that waits for it. Kernels are
  // loaded eagerly, so that none is loaded while other ranks wait for messages.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
  int version = 0;
  if (api.cuDriverGetVersion(&version) == CUDA_SUCCESS &&
      version / 1000 < CUDA_VERSION / 1000)
    fail(CLEAVE_UNSUPPORTED,
         "the driver serves CUDA " + std::to_string(version / 1000) + "." +
             std::to_string(version % 1000 / 10) +
             ", but cleave was built with CUDA " +
             std::to_string(CUDA_VERSION / 1000) + "." +
             std::to_string(CUDA_VERSION % 1000 / 10) +
             ": update the driver, or build cleave with an older toolkit");
  if (CUresult status = api.cuInit(0); status != CUDA_SUCCESS) {
    const char *name = nullptr;
    api.cuGetErrorName(status, &name);
    fail(CLEAVE_UNSUPPORTED,
         status == CUDA_ERROR_NO_DEVICE
             ? "no CUDA device was found: run on a machine with a GPU, or "
               "compile with target.kind = \"cpu\""
             : std::string("the driver cannot be initialised: ") +
                   (name ? name : "unknown error"));
  }
  return api;
}

BlasApi loadBlas() {
  std::string file = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  Library library(file.c_str(), "cuBLASLt, of the CUDA toolkit");
  BlasApi api;
  CLEAVE_BLAS_FUNCTIONS(CLEAVE_LOOK_UP)
  return api;
}

NcclApi loadNccl() {
  // With this setting NCCL makes the connections for its collectives when a
  // communicator is created. By default it makes them at the first collective,
  // in the middle of a step.
  setenv("NCCL_RUNTIME_CONNECT", "0", /*overwrite=*/0);
  Library library("libnccl.so.2", "NCCL; transport = \"local\" needs none");
  NcclApi api;
  CLEAVE_NCCL_FUNCTIONS(CLEAVE_LOOK_UP)
  return api;
}
} // namespace

// If loadDriver() throws, `api` stays uninitialised, and the next call of
// driver() tries to load the driver again.
const DriverApi &cuda::driver() {
  static const DriverApi api = loadDriver();
  return api;
}

const BlasApi &cuda::blas() {
  static const BlasApi api = loadBlas();
  return api;
}

const NcclApi &cuda::nccl() {
  static const NcclApi api = loadNccl();
  return api;
}

void cuda::check(CUresult status, const std::string &what) {
  if (status == CUDA_SUCCESS)
    return;
  const char *name = nullptr, *text = nullptr;
  driver().cuGetErrorName(status, &name);
  driver().cuGetErrorString(status, &text);
  fail(status == CUDA_ERROR_OUT_OF_MEMORY ? CLEAVE_OUT_OF_MEMORY
                                          : CLEAVE_RANK_FAILED,
       what + ": " + (name ? name : "unknown error") +
           (text ? std::string(" (") + text + ")" : ""));
}

void cuda::check(cublasStatus_t status, const std::string &what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail(status == CUBLAS_STATUS_ALLOC_FAILED ? CLEAVE_OUT_OF_MEMORY
                                              : CLEAVE_RANK_FAILED,
         what + ": " + blas().cublasLtGetStatusName(status));
}

void cuda::check(ncclResult_t status, const std::string &what) {
  if (status != ncclSuccess && status != ncclInProgress)
    fail(CLEAVE_RANK_FAILED, what + ": " + nccl().ncclGetErrorString(status));
}
