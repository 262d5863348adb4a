// Copies between the host and a rank's device, on a stream of their own.
#ifndef CLEAVE_RUNTIME_CUDA_HOST_COPIES_H
#define CLEAVE_RUNTIME_CUDA_HOST_COPIES_H

#include "device.h"

#include <array>
#include <mutex>

namespace cleave::cuda {

// A device reads and writes pages of the host at full speed, and while the host
// goes on, only where they are pinned. So data goes through two pinned pieces
// in turn: one is on its way while the host copies from or to the other.
//
// Both directions are ordered with `compute`, before and after. All functions
// may be called from any thread, one at a time.
class HostCopies {
public:
  HostCopies(Device &device, CUstream compute);
  ~HostCopies();
  HostCopies(const HostCopies &) = delete;

  // To the device. `from` may be overwritten on return, but what is written may
  // still be on its way: what is enqueued on `compute` from now on sees it.
  void write(char *to, const void *from, int64_t bytes);

  // From the device: what everything enqueued on `compute` leaves there.
  // Returns when the data is here.
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
  // The next piece, once nothing uses it. Its memory is allocated with its
  // first use.
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
