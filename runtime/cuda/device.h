// A device and the resources of a rank on it: memory, streams, events, modules.
//
// All calls act on the device that is current on the calling thread
// (Device::use). Destructors do not wait for running work, so the caller must
// synchronise first.
#ifndef CLEAVE_RUNTIME_CUDA_DEVICE_H
#define CLEAVE_RUNTIME_CUDA_DEVICE_H

#include "api.h"

#include <string>
#include <utility>
#include <vector>

namespace cleave::cuda {

// Owns a handle and frees it with `free`. Movable.
template <class Handle, void (*free)(Handle)> class Owned {
public:
  Owned() = default;
  explicit Owned(Handle handle) : handle(handle) {}
  Owned(Owned &&other) noexcept : handle(std::exchange(other.handle, {})) {}
  Owned &operator=(Owned &&other) noexcept {
    std::swap(handle, other.handle);
    return *this;
  }
  ~Owned() {
    if (handle)
      free(handle);
  }
  Handle get() const { return handle; }
  explicit operator bool() const { return handle; }

private:
  Handle handle{};
};

void freeMemory(CUdeviceptr at);
void freeNcclMemory(void *at);
void destroyStream(CUstream stream);
void destroyEvent(CUevent event);
void unloadModule(CUmodule module);
void destroyGraph(CUgraphExec graph);

using Stream = Owned<CUstream, destroyStream>;
using Event = Owned<CUevent, destroyEvent>;
using Module = Owned<CUmodule, unloadModule>;
using GraphExec = Owned<CUgraphExec, destroyGraph>;

Stream makeStream(); // not ordered with the default stream
Event makeEvent(bool timed = false);

// The allocator of device memory. NCCL's collectives can use memory from NCCL's
// allocator directly, without copies, once they are captured in a graph ("User
// Buffer Registration" in NCCL's manual). If NCCL has no allocator, the
// driver's is used.
enum class Allocator { Driver, Nccl };

// Owns device memory. It is zeroed, and begins at a multiple of 256 bytes.
class DeviceMemory {
public:
  DeviceMemory() = default;
  // Allocates memory. Throws OUT_OF_MEMORY that says how much was needed, how
  // much was free, and what it was for.
  DeviceMemory(int64_t bytes, const std::string &purpose,
               Allocator allocator = Allocator::Driver);
  char *data() const {
    return ofNccl ? static_cast<char *>(ofNccl.get())
                  : reinterpret_cast<char *>(at.get());
  }
  int64_t size() const { return bytes; }

private:
  Owned<CUdeviceptr, freeMemory> at;
  Owned<void *, freeNcclMemory> ofNccl;
  int64_t bytes = 0;
};

// A device's primary context, which lives as long as the process.
class Device {
public:
  // Returns the device of rank `index`, counted over the ranks of this machine.
  // Ranks are assigned in turn to the devices that this process sees. A
  // launcher may have hidden some devices from the process, so `index` may
  // exceed their number.
  static Device &of(int index);
  static int count();

  // Makes this the current device of the calling thread.
  void use();
  // Like use(), for destructors, which cannot report errors.
  void tryUse() { (void)driver().cuCtxSetCurrent(context); }

  // Lets kernels on this device read the memory of `other`. Throws UNSUPPORTED
  // if the machine cannot.
  void reach(Device &other);

  const std::string &name() const { return nameText; }
  // 16 bytes that identify the device across processes.
  std::string uuid() const;
  int capability() const { return version; } // 90: sm_90
  int processors() const { return multiprocessors; }

  const int ordinal;

private:
  explicit Device(int ordinal);
  CUdevice device = 0;
  CUcontext context = nullptr;
  std::string nameText;
  int version = 0, multiprocessors = 0;
};

inline CUdeviceptr address(const void *at) {
  return reinterpret_cast<CUdeviceptr>(at);
}

// Makes the stream `waiting` wait for all work that was enqueued on the stream
// `before` so far. `event` is recorded on `before` for this.
void after(CUstream before, CUevent event, CUstream waiting);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_DEVICE_H
