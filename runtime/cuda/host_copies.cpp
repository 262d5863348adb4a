// Copies between the host and a rank's device, on a separate stream.

#include "host_copies.h"

#include <algorithm>
#include <cstring>

using namespace cleave;
using namespace cleave::cuda;

HostCopies::HostCopies(Device &device, CUstream compute)
    : device(device), compute(compute), copies(makeStream()),
      begun(makeEvent()), done(makeEvent()) {}

// Waits for the device before the pinned buffers are freed: after a failure, it
// may still use them.
HostCopies::~HostCopies() {
  device.tryUse();
  (void)driver().cuStreamSynchronize(copies.get());
}

void HostCopies::await(Piece &piece) {
  if (piece.isOnItsWay)
    check(driver().cuEventSynchronize(piece.passed.get()),
          "copying between host and device");
  piece.isOnItsWay = false;
}

HostCopies::Piece &HostCopies::takePiece() {
  Piece &piece = pieces[next];
  next = (next + 1) % pieces.size();
  if (!piece.at) {
    piece.passed = makeEvent();
    void *pinned = nullptr;
    check(driver().cuMemHostAlloc(&pinned, pieceBytes, 0),
          "allocating host memory");
    piece.at = Owned<char *, freeHost>(static_cast<char *>(pinned));
  }
  await(piece);
  return piece;
}

void HostCopies::mark(Piece &piece) {
  check(driver().cuEventRecord(piece.passed.get(), copies.get()),
        "copying between host and device");
  piece.isOnItsWay = true;
}

void HostCopies::write(char *to, const void *from, int64_t bytes) {
  if (bytes <= 0)
    return;
  std::lock_guard lock(mutex);
  device.use();
  after(compute, begun.get(), copies.get());
  const char *source = static_cast<const char *>(from);
  for (int64_t at = 0; at < bytes; at += pieceBytes) {
    int64_t size = std::min(pieceBytes, bytes - at);
    Piece &piece = takePiece();
    std::memcpy(piece.at.get(), source + at, size);
    check(driver().cuMemcpyHtoDAsync(address(to + at), piece.at.get(), size,
                                     copies.get()),
          "copying to the device");
    mark(piece);
  }
  after(copies.get(), done.get(), compute);
}

void HostCopies::read(void *to, const char *from, int64_t bytes) {
  if (bytes <= 0)
    return;
  std::lock_guard lock(mutex);
  device.use();
  after(compute, begun.get(), copies.get());
  char *target = static_cast<char *>(to);
  Piece *before = nullptr; // holds the bytes before `at`
  for (int64_t at = 0; at - pieceBytes < bytes; at += pieceBytes) {
    Piece *piece = nullptr;
    if (at < bytes) {
      piece = &takePiece();
      check(driver().cuMemcpyDtoHAsync(piece->at.get(), address(from + at),
                                       std::min(pieceBytes, bytes - at),
                                       copies.get()),
            "copying from the device");
      mark(*piece);
    }
    if (before) {
      await(*before);
      std::memcpy(target + at - pieceBytes, before->at.get(),
                  std::min(pieceBytes, bytes - (at - pieceBytes)));
    }
    before = piece;
  }
}

void HostCopies::finish() {
  std::lock_guard lock(mutex);
  device.use();
  for (Piece &piece : pieces)
    await(piece);
}
