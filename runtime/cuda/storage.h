// An arena on a device.
#ifndef CLEAVE_RUNTIME_CUDA_STORAGE_H
#define CLEAVE_RUNTIME_CUDA_STORAGE_H

#include "backend.h"
#include "host_copies.h"

namespace cleave::cuda {

// The memory of an arena on a device. All operations are ordered with the
// stream of commands: work that is enqueued there later sees the effects of
// write() and zero().
class DeviceStorage : public Storage {
public:
  DeviceStorage(Device &device, HostCopies &copies, int64_t bytes,
                const std::string &purpose,
                Allocator allocator = Allocator::Driver)
      : device(device), copies(copies), stream(copies.ofCompute()),
        bytes(bytes), memory(bytes ? bytes + tail : 0, purpose, allocator) {}
  ~DeviceStorage() override;

  char *data() const override { return memory.data(); }
  int64_t size() const override { return bytes; }
  void write(int64_t at, const void *from, int64_t bytes) override;
  void read(int64_t at, void *to, int64_t bytes) const override;
  void zero(int64_t at, int64_t bytes) override;
  void finish() override { copies.finish(); }
  void poison(int64_t at, int64_t bytes) override;
  int64_t touched(int64_t at, int64_t bytes) const override;
  void guard() override;
  bool guardIntact() const override;

private:
  static constexpr int64_t tail = 256; // bytes after the end, for guard()

  Device &device;
  HostCopies &copies;
  const CUstream stream;
  const int64_t bytes;
  DeviceMemory memory;
};

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_STORAGE_H
