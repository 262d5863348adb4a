// CUDA devices and their memory, streams and events.

#include "device.h"

#include "error.h"

#include <memory>
#include <mutex>

using namespace cleave;
using namespace cleave::cuda;

// The errors of these functions are ignored: freeing fails only if the context
// is gone, and the memory is then freed already.
void cuda::freeMemory(CUdeviceptr at) { (void)driver().cuMemFree(at); }
void cuda::freeNcclMemory(void *at) { (void)nccl().ncclMemFree(at); }
void cuda::destroyStream(CUstream stream) {
  (void)driver().cuStreamDestroy(stream);
}
void cuda::destroyEvent(CUevent event) { (void)driver().cuEventDestroy(event); }
void cuda::unloadModule(CUmodule module) {
  (void)driver().cuModuleUnload(module);
}
void cuda::destroyGraph(CUgraphExec graph) {
  (void)driver().cuGraphExecDestroy(graph);
}

Stream cuda::makeStream() {
  CUstream stream = nullptr;
  check(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING),
        "creating a stream");
  return Stream(stream);
}

Event cuda::makeEvent(bool timed) {
  CUevent event = nullptr;
  check(driver().cuEventCreate(&event, timed ? CU_EVENT_DEFAULT
                                             : CU_EVENT_DISABLE_TIMING),
        "creating an event");
  return Event(event);
}

void cuda::after(CUstream before, CUevent event, CUstream waiting) {
  check(driver().cuEventRecord(event, before), "recording an event");
  check(driver().cuStreamWaitEvent(waiting, event, 0), "waiting for an event");
}

DeviceMemory::DeviceMemory(int64_t bytes, const std::string &purpose,
                           Allocator allocator)
    : bytes(bytes) {
  if (bytes == 0)
    return;
  CUdeviceptr got = 0;
  CUresult status = CUDA_SUCCESS;
  if (void *given = nullptr;
      allocator == Allocator::Nccl &&
      nccl().ncclMemAlloc(&given, bytes) == ncclSuccess) {
    ofNccl = Owned<void *, freeNcclMemory>(given);
    got = address(given);
  } else {
    status = driver().cuMemAlloc(&got, bytes);
  }
  if (status == CUDA_ERROR_OUT_OF_MEMORY) {
    size_t free = 0, total = 0;
    driver().cuMemGetInfo(&free, &total);
    fail(CLEAVE_OUT_OF_MEMORY,
         purpose + " needs " + std::to_string(bytes) +
             " bytes, but the device has " + std::to_string(free) + " of " +
             std::to_string(total) +
             " left; cut the model finer, use a smaller batch, or recompute");
  }
  check(status, "allocating " + purpose);
  if (!ofNccl)
    at = Owned<CUdeviceptr, freeMemory>(got);
  check(driver().cuMemsetD8Async(got, 0, bytes, nullptr),
        "clearing " + purpose);
  check(driver().cuStreamSynchronize(nullptr), "clearing " + purpose);
}

int Device::count() {
  int devices = 0;
  check(driver().cuDeviceGetCount(&devices), "counting devices");
  return devices;
}

Device &Device::of(int index) {
  static std::mutex mutex;
  static std::vector<std::unique_ptr<Device>> devices;
  std::lock_guard lock(mutex);
  int all = count();
  if (all < 1)
    fail(CLEAVE_UNSUPPORTED, "no CUDA device was found");
  devices.resize(all);
  std::unique_ptr<Device> &device = devices[index % all];
  if (!device)
    device.reset(new Device(index % all));
  return *device;
}

Device::Device(int ordinal) : ordinal(ordinal) {
  const DriverApi &api = driver();
  std::string what = "opening device " + std::to_string(ordinal);
  check(api.cuDeviceGet(&device, ordinal), what);
  char text[256] = {};
  check(api.cuDeviceGetName(text, sizeof(text), device), what);
  nameText = text;
  auto attribute = [&](CUdevice_attribute key) {
    int value = 0;
    check(api.cuDeviceGetAttribute(&value, key, device), what);
    return value;
  };
  version = 10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
            attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  check(api.cuDevicePrimaryCtxRetain(&context, device), what);
}

std::string Device::uuid() const {
  CUuuid id{};
  check(driver().cuDeviceGetUuid(&id, device), "asking for a device's UUID");
  return std::string(id.bytes, sizeof(id.bytes));
}

void Device::reach(Device &other) {
  if (&other == this)
    return;
  int can = 0;
  check(driver().cuDeviceCanAccessPeer(&can, device, other.device),
        "asking whether devices reach each other");
  if (!can)
    fail(CLEAVE_UNSUPPORTED,
         "devices " + std::to_string(ordinal) + " and " +
             std::to_string(other.ordinal) +
             " cannot read each other's memory, which transport \"local\" "
             "needs; use \"nccl\"");
  use();
  CUresult status = driver().cuCtxEnablePeerAccess(other.context, 0);
  if (status != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
    check(status, "letting a device read another one's memory");
}

void Device::use() {
  check(driver().cuCtxSetCurrent(context), "using device " + nameText);
}
