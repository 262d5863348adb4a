// Replaces runtime/cuda/api.cpp in tests. Its driver table has only the
// functions that kernels need.

#include "TinyDriver.h"

#include "error.h"

#include <gtest/gtest.h>

using namespace cleave;
using namespace cleave::cuda;

namespace {
std::vector<std::string> launches;

const EmulatedKernel *kernelOf(CUfunction function) {
  return reinterpret_cast<const EmulatedKernel *>(function);
}

CUresult launch(CUfunction function, unsigned gridX, unsigned, unsigned,
                unsigned blockX, unsigned, unsigned, unsigned shared, CUstream,
                void **args, void **) {
  launches.emplace_back(kernelOf(function)->name);
  runEmulated(*kernelOf(function), gridX, static_cast<int>(blockX), shared,
              args);
  return CUDA_SUCCESS;
}

CUresult findFunction(CUfunction *out, CUmodule, const char *name) {
  const EmulatedKernel *kernel = findEmulated(name);
  *out = reinterpret_cast<CUfunction>(const_cast<EmulatedKernel *>(kernel));
  return kernel ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult load(CUmodule *out, const void *image) {
  // Of a fatbin.
  if (*static_cast<const uint32_t *>(image) != 0xba55ed50)
    return CUDA_ERROR_INVALID_IMAGE;
  *out = reinterpret_cast<CUmodule>(const_cast<void *>(image));
  return CUDA_SUCCESS;
}

DriverApi makeDriver() {
  DriverApi api;
  api.cuDeviceGetCount = [](int *count) {
    *count = 1;
    return CUDA_SUCCESS;
  };
  api.cuDeviceGet = [](CUdevice *device, int) {
    *device = 0;
    return CUDA_SUCCESS;
  };
  api.cuDeviceGetName = [](char *text, int, CUdevice) {
    text[0] = 'T', text[1] = 0;
    return CUDA_SUCCESS;
  };
  api.cuDeviceGetAttribute = [](int *value, CUdevice_attribute key, CUdevice) {
    bool isMajor = key == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
    bool isMinor = key == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR;
    *value = isMajor ? 9 : isMinor ? 0 : 2; // two multiprocessors
    return CUDA_SUCCESS;
  };
  api.cuDevicePrimaryCtxRetain = [](CUcontext *context, CUdevice) {
    *context = nullptr;
    return CUDA_SUCCESS;
  };
  api.cuModuleLoadData = load;
  api.cuModuleUnload = [](CUmodule) { return CUDA_SUCCESS; };
  api.cuModuleGetFunction = findFunction;
  api.cuFuncSetAttribute = [](CUfunction, CUfunction_attribute, int) {
    return CUDA_SUCCESS;
  };
  api.cuLaunchKernel = launch;
  return api;
}
} // namespace

const DriverApi &cuda::driver() {
  static const DriverApi api = makeDriver();
  return api;
}
const BlasApi &cuda::blas() {
  fail(CLEAVE_UNSUPPORTED, "no cuBLASLt in this test");
}
const NcclApi &cuda::nccl() {
  fail(CLEAVE_UNSUPPORTED, "no NCCL in this test");
}
void cuda::check(CUresult status, const std::string &what) {
  if (status != CUDA_SUCCESS)
    fail(CLEAVE_RANK_FAILED, what + ": error " + std::to_string(status));
}
void cuda::check(cublasStatus_t status, const std::string &what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail(CLEAVE_RANK_FAILED, what);
}
void cuda::check(ncclResult_t status, const std::string &what) {
  if (status != ncclSuccess)
    fail(CLEAVE_RANK_FAILED, what);
}

Kernels &test::kernels() { return Kernels::of(Device::of(0)); }

std::vector<std::string> test::takeLaunches() {
  return std::exchange(launches, {});
}

void test::runInBothOrders(const std::function<void()> &run,
                           const std::function<std::string()> &outcome) {
  setThreadOrder(ThreadOrder::Descending);
  run();
  std::string descending = outcome();
  setThreadOrder(ThreadOrder::Ascending);
  run();
  EXPECT_TRUE(outcome() == descending)
      << "the result depends on the order of the threads";
}
