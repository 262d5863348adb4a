// The simulated CUDA driver: devices, memory, copies.

#include "driver.h"

#include <cstdlib>
#include <cstring>
#include <new>

using namespace recorder;

namespace {
int64_t setting(const char *variable, int64_t otherwise) {
  const char *text = std::getenv(variable);
  return text ? std::atoll(text) : otherwise;
}

Device *deviceOf(CUdevice device) {
  auto &devices = Recorder::get().devices;
  return device >= 0 && device < int(devices.size()) ? devices[device].get()
                                                     : nullptr;
}

int64_t memoryLimit() {
  return setting("CLEAVE_RECORDER_MEMORY", int64_t(80) << 30);
}
} // namespace

#define NEED_DEVICE                                                            \
  if (!currentDevice)                                                          \
  return CUDA_ERROR_INVALID_CONTEXT

//--- Devices -----------------------------------------------------------------

CUresult cuInit(unsigned) {
  return Recorder::get().devices.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
  *version = int(setting("CLEAVE_RECORDER_DRIVER", CUDA_VERSION));
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **out) {
  switch (error) {
#define NAME(code)                                                             \
  case code:                                                                   \
    *out = #code;                                                              \
    return CUDA_SUCCESS;
    NAME(CUDA_SUCCESS)
    NAME(CUDA_ERROR_INVALID_VALUE)
    NAME(CUDA_ERROR_OUT_OF_MEMORY)
    NAME(CUDA_ERROR_NO_DEVICE)
    NAME(CUDA_ERROR_INVALID_DEVICE)
    NAME(CUDA_ERROR_INVALID_CONTEXT)
    NAME(CUDA_ERROR_INVALID_HANDLE)
    NAME(CUDA_ERROR_INVALID_IMAGE)
    NAME(CUDA_ERROR_INVALID_PTX)
    NAME(CUDA_ERROR_ILLEGAL_STATE)
    NAME(CUDA_ERROR_NOT_FOUND)
    NAME(CUDA_ERROR_NOT_READY)
    NAME(CUDA_ERROR_NOT_SUPPORTED)
    NAME(CUDA_ERROR_LAUNCH_TIMEOUT)
    NAME(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
    NAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    NAME(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
    NAME(CUDA_ERROR_STREAM_CAPTURE_MERGE)
    NAME(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED)
    NAME(CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
    NAME(CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
    NAME(CUDA_ERROR_CAPTURED_EVENT)
#undef NAME
  default:
    *out = nullptr;
    return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuGetErrorString(CUresult error, const char **out) {
  CUresult status = cuGetErrorName(error, out);
  if (status == CUDA_SUCCESS)
    *out = "said by the recorder, which stands in for the driver";
  return status;
}

CUresult cuDeviceGetCount(int *count) {
  *count = int(Recorder::get().devices.size());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  if (!deviceOf(ordinal))
    return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *out, CUdevice device) {
  Device *found = deviceOf(device);
  if (!found)
    return CUDA_ERROR_INVALID_DEVICE;
  // A device has the same UUID in all processes of the machine. The devices of
  // a process are numbered from CLEAVE_RECORDER_FIRST.
  std::memset(out, 0, sizeof(*out));
  std::snprintf(out->bytes, sizeof(out->bytes), "recorder %d",
                int(setting("CLEAVE_RECORDER_FIRST", 0)) + found->number);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
  if (!deviceOf(device) || size < 1)
    return CUDA_ERROR_INVALID_DEVICE;
  std::strncpy(name, "recorder (no device)", size);
  name[size - 1] = 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute,
                              CUdevice device) {
  if (!deviceOf(device))
    return CUDA_ERROR_INVALID_DEVICE;
  // As 90: 9.0.
  int capability = int(setting("CLEAVE_RECORDER_CAPABILITY", 90));
  switch (attribute) {
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
    *value = capability / 10;
    return CUDA_SUCCESS;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
    *value = capability % 10;
    return CUDA_SUCCESS;
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
    *value = 132;
    return CUDA_SUCCESS;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
    *value = 227 * 1024;
    return CUDA_SUCCESS;
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
  if (!deviceOf(device) || !deviceOf(peer))
    return CUDA_ERROR_INVALID_DEVICE;
  *can = device != peer && setting("CLEAVE_RECORDER_PEERS", 1);
  return CUDA_SUCCESS;
}

// The only context of a device is its primary context, so the handle of the
// context is the device itself.
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  if (!deviceOf(device))
    return CUDA_ERROR_INVALID_DEVICE;
  *context = reinterpret_cast<CUcontext>(deviceOf(device));
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return deviceOf(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  currentDevice = reinterpret_cast<Device *>(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned) {
  NEED_DEVICE;
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  auto *other = reinterpret_cast<Device *>(peer);
  if (!other || other == currentDevice)
    return CUDA_ERROR_INVALID_DEVICE;
  return currentDevice->peers.insert(other->number).second
             ? CUDA_SUCCESS
             : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

//--- Memory ------------------------------------------------------------------

CUresult cuMemGetInfo(size_t *free, size_t *total) {
  NEED_DEVICE;
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  *total = size_t(memoryLimit());
  *free = *total - size_t(all.memory.used(currentDevice->number));
  return CUDA_SUCCESS;
}

namespace {
CUresult allocate(char **out, size_t bytes, int device) {
  NEED_DEVICE;
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  if (CUresult unsafe = all.checkUnsafe(); unsafe != CUDA_SUCCESS)
    return unsafe;
  if (bytes == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (device >= 0 && (int64_t(bytes) < 0 ||
                      all.memory.used(device) + int64_t(bytes) > memoryLimit()))
    return CUDA_ERROR_OUT_OF_MEMORY;
  try {
    *out = all.memory.add(int64_t(bytes), device)->data;
  } catch (const std::bad_alloc &) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

CUresult release(const void *at, bool isDevice) {
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  if (CUresult unsafe = all.checkUnsafe(); unsafe != CUDA_SUCCESS)
    return unsafe;
  Allocation *allocation = all.memory.find(at);
  if (!allocation || allocation->data != at ||
      (allocation->device >= 0) != isDevice)
    return CUDA_ERROR_INVALID_VALUE;
  if (const Epoch *after = allocation->findAfter(*all.host))
    all.report.error(allocation->name() +
                     " is freed, but nobody has waited "
                     "for " +
                     after->who->text());
  if (int64_t overrun = allocation->findOverrun())
    all.report.error("somebody wrote outside " + allocation->name() +
                     ", at byte " + std::to_string(overrun));
  all.memory.remove(allocation);
  return CUDA_SUCCESS;
}
} // namespace

CUresult cuMemAlloc(CUdeviceptr *out, size_t bytes) {
  char *data = nullptr;
  CUresult status =
      allocate(&data, bytes, currentDevice ? currentDevice->number : 0);
  *out = reinterpret_cast<CUdeviceptr>(data);
  return status;
}

CUresult cuMemFree(CUdeviceptr at) {
  return at ? release(reinterpret_cast<void *>(at), true) : CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned) {
  char *data = nullptr;
  CUresult status = allocate(&data, bytes, -1);
  *out = data;
  return status;
}

CUresult cuMemFreeHost(void *at) { return release(at, false); }

//--- Copies ------------------------------------------------------------------

namespace {
struct Copy {
  const char *what;
  char *dst;
  const char *src;
  size_t bytes;
  bool toHost = false, fromHost = false, crossesDevices = false;
};

// Enqueues a copy. If the host memory is not pinned, this function returns only
// after the memory has been read or written, except during a capture. The real
// driver behaves in the same way, because it stages such copies.
CUresult enqueue(CUstream handle, const Copy &copy) {
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  Stream *stream = all.stream(handle);
  if (!stream)
    return CUDA_ERROR_INVALID_HANDLE;
  if (copy.bytes == 0)
    return CUDA_SUCCESS;
  char *dst = copy.dst;
  const char *src = copy.src;
  size_t bytes = copy.bytes;
  bool pageableSource = copy.fromHost && !all.memory.find(src);
  bool pageableTarget = copy.toHost && !all.memory.find(dst);
  Operation operation;
  operation.who = all.name(*stream, copy.what);
  operation.crossesDevices = copy.crossesDevices;
  if (!pageableSource)
    operation.accesses.push_back(
        {const_cast<char *>(src), int64_t(bytes), false});
  if (!pageableTarget)
    operation.accesses.push_back({dst, int64_t(bytes), true});
  ++all.report.totals.copies;
  if (pageableSource && !stream->capture) {
    auto staged = std::make_shared<std::vector<char>>(src, src + bytes);
    operation.run = [dst, staged] {
      std::memcpy(dst, staged->data(), staged->size());
    };
  } else {
    operation.run = [dst, src, bytes] { std::memmove(dst, src, bytes); };
  }
  bool isAwaited = pageableTarget && !stream->capture;
  all.enqueue(*stream, std::move(operation));
  return isAwaited ? synchronize(all, lock, *stream) : CUDA_SUCCESS;
}

CUresult fill(CUstream handle, CUdeviceptr at, unsigned value, int size,
              size_t count) {
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  Stream *stream = all.stream(handle);
  if (!stream)
    return CUDA_ERROR_INVALID_HANDLE;
  if (at % size)
    return CUDA_ERROR_INVALID_VALUE;
  if (count == 0)
    return CUDA_SUCCESS;
  auto *dst = reinterpret_cast<char *>(at);
  Operation operation;
  operation.who = all.name(*stream, "fill");
  operation.accesses.push_back({dst, int64_t(count) * size, true});
  operation.run = [dst, value, size, count] {
    for (size_t i = 0; i < count; ++i)
      std::memcpy(dst + i * size, &value, size);
  };
  all.enqueue(*stream, std::move(operation));
  return CUDA_SUCCESS;
}

char *pointer(CUdeviceptr at) { return reinterpret_cast<char *>(at); }
} // namespace

CUresult recorder::synchronize(Recorder &all,
                               std::unique_lock<std::mutex> &lock,
                               Stream &stream) {
  Stream *waited = &stream;
  if (!all.wait(lock, "waiting for stream " + std::to_string(stream.number),
                [&] { return waited->queue.empty(); }))
    return CUDA_ERROR_LAUNCH_TIMEOUT;
  all.hostJoins(stream.clock);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr dst, const void *src, size_t bytes,
                           CUstream stream) {
  return enqueue(stream, {.what = "copy from the host",
                          .dst = pointer(dst),
                          .src = static_cast<const char *>(src),
                          .bytes = bytes,
                          .fromHost = true});
}

CUresult cuMemcpyDtoHAsync(void *dst, CUdeviceptr src, size_t bytes,
                           CUstream stream) {
  return enqueue(stream, {.what = "copy to the host",
                          .dst = static_cast<char *>(dst),
                          .src = pointer(src),
                          .bytes = bytes,
                          .toHost = true});
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                           CUstream stream) {
  return enqueue(stream, {.what = "copy",
                          .dst = pointer(dst),
                          .src = pointer(src),
                          .bytes = bytes});
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext, CUdeviceptr src,
                           CUcontext, size_t bytes, CUstream stream) {
  return enqueue(stream, {.what = "copy between devices",
                          .dst = pointer(dst),
                          .src = pointer(src),
                          .bytes = bytes,
                          .crossesDevices = true});
}

CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t count,
                         CUstream stream) {
  return fill(stream, at, value, 1, count);
}

CUresult cuMemsetD16Async(CUdeviceptr at, unsigned short value, size_t count,
                          CUstream stream) {
  return fill(stream, at, value, 2, count);
}
