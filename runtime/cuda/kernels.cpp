// Loads the runtime's kernels on a device, and launches them.

#include "kernels.h"

#include "error.h"
#include "kernels/images.h"

#include <cstdlib>
#include <memory>

using namespace cleave;
using namespace cleave::cuda;

Kernels &Kernels::of(Device &device) {
  static std::mutex mutex;
  static std::map<int, std::unique_ptr<Kernels>> all;
  std::lock_guard lock(mutex);
  std::unique_ptr<Kernels> &kernels = all[device.ordinal];
  if (!kernels)
    kernels.reset(new Kernels(device));
  return *kernels;
}

Kernels::Kernels(Device &device) : device(device) {
  for (const Image &image : images()) {
    if (image.generation && image.generation != device.capability())
      continue;
    CUmodule module = nullptr;
    check(driver().cuModuleLoadData(&module, image.data),
          std::string("loading the kernels of ") + image.name + " on device " +
              std::to_string(device.ordinal) + " (" + device.name() + ", sm_" +
              std::to_string(device.capability()) + ")");
    modules.emplace_back(module);
    if (image.generation == 90)
      hasWarpgroups = !std::getenv("CLEAVE_CUDA_NO_WGMMA");
  }
}

CUfunction Kernels::find(const char *name) {
  std::lock_guard lock(mutex);
  CUfunction &function = functions[name];
  for (const Module &module : modules) {
    if (function)
      break;
    CUfunction found = nullptr;
    CUresult status = driver().cuModuleGetFunction(&found, module.get(), name);
    if (status != CUDA_ERROR_NOT_FOUND)
      check(status, std::string("finding kernel ") + name);
    if (status == CUDA_SUCCESS)
      function = found;
  }
  if (!function)
    fail(CLEAVE_INTERNAL, std::string("there is no kernel ") + name);
  return function;
}

void Kernels::launchPointers(const char *name, int64_t blocks, int threads,
                             int64_t shared, CUstream stream, void **args) {
  if (blocks == 0)
    return;
  CUfunction function = find(name);
  std::string what = std::string("launching kernel ") + name;
  if (blocks < 0 || blocks > INT32_MAX)
    fail(CLEAVE_UNSUPPORTED, what + " with " + std::to_string(blocks) +
                                 " blocks, more than a grid can have");
  // By default a kernel may use 48 KiB of shared memory, static and dynamic
  // memory together. If it needs more than 16 KiB of dynamic memory, its limit
  // is raised. The limit belongs to the function, which all ranks of the device
  // share, so it is never lowered.
  if (shared > (16 << 10)) {
    std::lock_guard lock(mutex);
    if (int64_t &limit = sharedLimits[function]; shared > limit) {
      check(driver().cuFuncSetAttribute(
                function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                static_cast<int>(shared)),
            what + " with " + std::to_string(shared) +
                " bytes of shared memory");
      limit = shared;
    }
  }
  check(driver().cuLaunchKernel(function, static_cast<unsigned>(blocks), 1, 1,
                                static_cast<unsigned>(threads), 1, 1,
                                static_cast<unsigned>(shared), stream, args,
                                nullptr),
        what);
}
