// The cuDNN handle of a device, with the plans that were created for it.

#include "dnn_device.h"

#include "dnn_attention.h"
#include "error.h"

#include <memory>

using namespace cleave;
using namespace cleave::cuda;

DnnDevice *DnnDevice::of(Device &device, std::string &why) {
  const DnnApi *api = dnn();
  if (!api) {
    why = "there is no cuDNN, or CLEAVE_CUDA_NO_CUDNN is set";
    return nullptr;
  }
  // Never destroyed, because cuDNN may be unloaded before the process ends.
  static auto &mutex = *new std::mutex;
  static auto &all = *new std::map<int, std::unique_ptr<DnnDevice>>;
  std::lock_guard lock(mutex);
  std::unique_ptr<DnnDevice> &found = all[device.ordinal];
  if (!found)
    found.reset(new DnnDevice(*api, device));
  why = found->missing;
  return why.empty() ? found.get() : nullptr;
}

const DnnEntry &DnnDevice::planOf(DnnFamily family, std::vector<int64_t> key,
                                  const Make &make) {
  std::lock_guard lock(mutex);
  auto [found, isNew] = plans.try_emplace({family, std::move(key)});
  DnnEntry &entry = found->second;
  if (!isNew)
    return entry;
  try {
    make({api, capability, handle}, entry);
  } catch (const DnnRefusal &refusal) {
    entry.plan.reset();
    entry.why = refusal.what();
  }
  return entry;
}

void DnnDevice::execute(const DnnPlan &plan, const DnnDescriptor &pack,
                        CUstream stream, const std::string &what) {
  std::lock_guard lock(mutex);
  check(api.cudnnSetStream(handle, reinterpret_cast<cudaStream_t>(stream)),
        "cudnnSetStream for " + what);
  check(api.cudnnBackendExecute(handle, plan.get(), pack.get()),
        "cudnnBackendExecute of " + what);
}

DnnDevice::DnnDevice(const DnnApi &api, Device &device)
    : api(api), capability(device.capability()) {
  try {
    checkDnnTarget({api, capability});
  } catch (const DnnRefusal &refusal) {
    missing = refusal.what();
    return;
  }
  device.use();
  cudnnStatus_t status = api.cudnnCreate(&handle);
  if (status != CUDNN_STATUS_SUCCESS)
    missing =
        std::string("preparing cuDNN: ") + api.cudnnGetErrorString(status);
}
