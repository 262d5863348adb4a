// Copies between the host and a rank's device, on a separate stream.
#ifndef CLEAVE_RUNTIME_CUDA_HOST_COPIES_H
#define CLEAVE_RUNTIME_CUDA_HOST_COPIES_H

#include "device.h"

#include <array>
#include <mutex>

namespace cleave::cuda {

// A device accesses host memory at full speed, and asynchronously, only if the
// pages are pinned. So data goes through two pinned buffers in turn: one is in
// transfer while the host copies from or to the other. A copy waits for work
// that was enqueued on the stream `compute` earlier, and work that is enqueued
// there later waits for the copy. All functions may be called from any thread,
// one at a time.
class HostCopies {
public:
  HostCopies(Device &device, CUstream compute);
  ~HostCopies();
  HostCopies(const HostCopies &) = delete;

  // Copies to the device. On return, `from` may be overwritten, although the
  // device may not have received the data yet. Work that is enqueued on
  // `compute` afterwards sees the data.
  void write(char *to, const void *from, int64_t bytes);

  // Copies from the device, after all work that is enqueued on `compute` so
  // far. Returns when the data has arrived.
  void read(void *to, const char *from, int64_t bytes);

  // Waits until all copies have ended.
  void finish();

  CUstream ofCompute() const { return compute; }

  static constexpr int64_t pieceBytes = int64_t(4) << 20;

private:
  static void freeHost(char *at) { (void)driver().cuMemFreeHost(at); }
  struct Piece {
    Owned<char *, freeHost> at;
    Event passed;
    bool isOnItsWay = false;
  };
  // Returns the next pinned buffer, once nothing uses it. Its memory is
  // allocated at its first use.
  Piece &takePiece();
  void mark(Piece &piece);
  static void await(Piece &piece);

  Device &device;
  const CUstream compute;
  std::mutex mutex;
  Stream copies;
  Event begun, done;
  std::array<Piece, 2> pieces;
  size_t next = 0;
};

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_HOST_COPIES_H
